// A list of any length: only rows that can be seen exist. All rows have one height, which the style sheet says.

import { el } from "./dom.js";

const SPARE = 6;

/**
 * `heads`: of its columns; `make()` makes a row, `fill(row, item)` fills it, `open(item)` follows it, `key(item)` tells
 * items apart. Arrow keys, Page Up and Down, Home and End move; Enter opens.
 */
export function virtualList({ label, heads, make, fill, open, key }) {
  const space = el("div", { class: "list-space", role: "presentation" });
  const box = el("div", { class: "list-scroll", role: "rowgroup" }, space);
  const head = el("div", { role: "rowgroup" }, el("div", { class: "list-head", role: "row", "aria-rowindex": 1 }, heads));
  const grid = el("div", { class: "list", role: "grid", tabindex: "0", "aria-label": label }, head, box);
  const pool = [];
  let items = [];
  let active = null;
  let height = 32;

  function draw() {
    const shown = Math.ceil(box.clientHeight / height) + 2 * SPARE;
    const first = Math.max(0, Math.min(Math.floor(box.scrollTop / height) - SPARE, items.length - shown));
    const last = Math.min(items.length, first + shown);
    while (pool.length < last - first) {
      const row = make();
      row.classList.add("list-row");
      row.setAttribute("role", "row");
      pool.push(row);
      space.append(row);
    }
    for (let at = 0; at < pool.length; at += 1) {
      const index = first + at;
      const row = pool[index % pool.length];
      row.hidden = index >= last;
      if (row.hidden) continue;
      row.id = `${label}-${index}`;
      row.setAttribute("aria-rowindex", index + 2);
      row.style.transform = `translateY(${index * height}px)`;
      row.classList.toggle("is-active", key(items[index]) === active);
      fill(row, items[index]);
    }
    const at = where();
    if (at >= first && at < last) grid.setAttribute("aria-activedescendant", `${label}-${at}`);
    else grid.removeAttribute("aria-activedescendant");
  }

  function where() {
    return active === null ? -1 : items.findIndex((item) => key(item) === active);
  }

  function move(to) {
    if (!items.length) return;
    const index = Math.max(0, Math.min(items.length - 1, to));
    active = key(items[index]);
    const top = index * height;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
    draw();
  }

  box.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  grid.addEventListener("keydown", (event) => {
    if (event.target.closest("button")) return; // of a head
    const page = Math.max(1, Math.floor(box.clientHeight / height) - 1);
    const at = where();
    const steps = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page };
    const ends = { Home: 0, End: items.length - 1 };
    if (event.key in steps || event.key in ends) {
      event.preventDefault();
      move(event.key in ends ? ends[event.key] : steps[event.key]);
    } else if (event.key === "Enter" && at >= 0) {
      open(items[at]);
    }
  });
  const watch = new ResizeObserver(() => measure());
  watch.observe(box);

  function measure() {
    height = parseFloat(getComputedStyle(box).getPropertyValue("--row")) || 32;
    space.style.height = `${items.length * height}px`;
    draw();
  }

  return {
    grid,
    redraw: draw,
    focus: () => grid.focus(),
    show(next) {
      items = next;
      box.hidden = !items.length;
      grid.setAttribute("aria-rowcount", items.length + 1);
      space.style.height = `${items.length * height}px`;
      draw();
    },
    top() {
      box.scrollTop = 0;
    },
    close: () => watch.disconnect(),
  };
}
