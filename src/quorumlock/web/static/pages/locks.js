// Every lock that is held: found by words, sorted by a column, alive.

import { el, empty, lockHref, put } from "../dom.js";
import { count, fence, span } from "../format.js";
import { virtualList } from "../list.js";
import { now, store } from "../store.js";

const COLUMNS = [
  { key: "name", title: "Name" },
  { key: "state", title: "State" },
  { key: "who", title: "Holder" },
  { key: "since", title: "For" },
  { key: "fence", title: "Fence" },
  { key: "waiting", title: "Waiting" },
  { key: "note", title: "Note" },
];
const remembered = { search: "", state: "", sort: "name", down: false };

function compare(a, b, key) {
  if (a[key] === b[key]) return a.name < b.name ? -1 : 1;
  if (a[key] === null) return 1;
  if (b[key] === null) return -1;
  return a[key] < b[key] ? -1 : 1;
}

export function locks(main) {
  const wish = remembered;
  const search = el("input", {
    type: "search", placeholder: "Search names, holders, notes   /", "aria-label": "Search locks", value: wish.search,
    autocomplete: "off", spellcheck: "false",
  });
  const states = el("select", { "aria-label": "State" }, ["", "held", "shared", "closed", "contested"].map((state) =>
    el("option", { value: state, selected: wish.state === state }, state || "any state")));
  // Where there is no room for a head.
  const sorts = el("select", { "aria-label": "Sort", class: "sorts" }, COLUMNS.flatMap(({ key, title }) =>
    [false, true].map((down) => el("option", { value: `${key} ${down}` }, `${title} ${down ? "↓" : "↑"}`))));
  const found = el("output", { class: "found" });
  const heads = COLUMNS.map(({ key, title }) =>
    el("span", { class: `col-${key}`, role: "columnheader" }, el("button", { type: "button", class: "sort", onclick: () => sort(key) }, title)));
  const nothing = el("div");
  const list = virtualList({
    label: "locks",
    heads,
    key: (row) => row.name,
    open: (row) => { location.hash = lockHref(row.name); },
    make: () => el("a", { tabindex: "-1" }, COLUMNS.map(({ key }) => el("span", { class: `col-${key} cut`, role: "gridcell" }))),
    fill,
  });
  main.append(
    el("h1", { class: "hidden" }, "Locks"),
    el("div", { class: "tools" }, search, states, sorts, found),
    el("div", { class: "panel list-panel" }, list.grid, nothing),
  );
  let drawn = "";

  function fill(element, row) {
    const holder = row.holders > 1 ? `${row.who} and ${row.holders - 1} more` : row.who;
    const texts = [row.name, row.state, holder, row.since === null ? "" : span(now() - row.since), fence(row.fence),
      row.waiting ? count(row.waiting) : "", row.note ?? ""];
    element.setAttribute("href", lockHref(row.name));
    texts.forEach((text, at) => {
      const cell = element.children[at];
      put(cell, text);
      if (cell.title !== text) cell.title = text;
    });
    element.children[0].dir = "auto";
    element.children[1].className = `col-state badge is-${row.state}`;
    put(element.children[1], row.kind && row.kind !== "mutex" && row.kind !== "read" ? row.kind : row.state);
    element.children[1].title = row.kind ? `${row.state} (${row.kind})` : row.state;
  }

  function sort(key, down = wish.sort === key ? !wish.down : key === "waiting") {
    wish.down = down;
    wish.sort = key;
    update();
    list.top();
  }

  function wanted() {
    const text = wish.search.trim().toLowerCase();
    const rows = [...store.rows.values()].filter((row) =>
      (!wish.state || row.state === wish.state) &&
      (!text || row.name.toLowerCase().includes(text) || row.who.toLowerCase().includes(text) || row.note?.toLowerCase().includes(text)));
    rows.sort((a, b) => compare(a, b, wish.sort));
    return wish.down ? rows.reverse() : rows;
  }

  function update() {
    const state = JSON.stringify([store.changes, wish]);
    if (state !== drawn) {
      drawn = state;
      const rows = wanted();
      list.show(rows);
      put(found, `${count(rows.length)} of ${count(store.rows.size)}${store.cut ? "+" : ""}`);
      heads.forEach((head, at) => {
        const mine = COLUMNS[at].key === wish.sort;
        if (mine) head.setAttribute("aria-sort", wish.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      sorts.value = `${wish.sort} ${wish.down}`;
      nothing.replaceChildren(...(rows.length ? [] : [
        !store.version ? empty("Looking at the fleet…")
          : store.rows.size ? empty("No lock matches.", el("button", { type: "button", onclick: clear }, "Show all"))
            : empty("No lock is held.", el("span", null, "Take one, and it appears here at once: ", el("code", null, "quorumlock run demo -- sleep 60"))),
      ]));
    } else {
      list.redraw();
    }
  }

  function clear() {
    search.value = wish.search = states.value = wish.state = "";
    update();
    search.focus();
  }

  search.addEventListener("input", () => { wish.search = search.value; update(); list.top(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); list.focus(); }
    if (event.key === "Escape") clear();
  });
  sorts.addEventListener("change", () => {
    const [key, down] = sorts.value.split(" ");
    sort(key, down === "true");
  });
  states.addEventListener("change", () => { wish.state = states.value; update(); list.top(); });
  return { update, close: list.close };
}
