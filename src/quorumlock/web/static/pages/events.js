// What happened, the newest first.

import { el, empty, lockHref, put, replace } from "../dom.js";
import { clock, count, fence } from "../format.js";
import { virtualList } from "../list.js";
import { store } from "../store.js";
import { source } from "./shared.js";

const COLUMNS = [["at", "Time"], ["what", "What"], ["name", "Lock"], ["fence", "Fence"], ["who", "Who"], ["note", "Detail"]];
const KINDS = ["", "acquired", "released", "ended", "expired", "broken", "refused"];
const wish = { search: "", what: "" };

export function events(main) {
  const search = el("input", { type: "search", placeholder: "Search locks, holders   /", "aria-label": "Search events", value: wish.search, autocomplete: "off", spellcheck: "false" });
  const kinds = el("select", { "aria-label": "What" }, KINDS.map((kind) => el("option", { value: kind, selected: kind === wish.what }, kind || "anything")));
  const found = el("output", { class: "found" });
  const nothing = el("div");
  const footer = el("div");
  const list = virtualList({
    label: "events",
    heads: COLUMNS.map(([key, title]) => el("span", { class: `col-${key}`, role: "columnheader" }, title)),
    key: (event) => event.id,
    open: (event) => { location.hash = lockHref(event.name); },
    make: () => el("a", { tabindex: "-1" }, COLUMNS.map(([key]) => el("span", { class: `col-${key} cut`, role: "gridcell" }))),
    fill(element, event) {
      const texts = [clock(event.at), event.what, event.name, fence(event.fence), event.who, event.detail];
      element.setAttribute("href", lockHref(event.name));
      texts.forEach((text, at) => { put(element.children[at], text); element.children[at].title = text; });
      element.children[1].className = `col-what badge is-${event.what}`;
    },
  });
  main.append(
    el("h1", { class: "hidden" }, "Events"),
    el("div", { class: "tools" }, search, kinds, found),
    el("div", { class: "panel list-panel events" }, list.grid, nothing),
    footer,
  );
  let drawn = "";

  function update() {
    const state = JSON.stringify([store.events.length, store.events.at(-1)?.id, wish, store.journal, store.started, !store.version]);
    if (state === drawn) return;
    drawn = state;
    const text = wish.search.trim().toLowerCase();
    const rows = store.events.filter((event) =>
      (!wish.what || event.what === wish.what) && (!text || event.name.toLowerCase().includes(text) || event.who.toLowerCase().includes(text))).reverse();
    list.show(rows);
    put(found, `${count(rows.length)} of ${count(store.events.length)}`);
    replace(nothing, rows.length ? null
      : store.events.length ? empty("No event matches.")
        : empty("Nothing has happened yet.", el("span", null, "Take a lock, and it appears here: ", el("code", null, "quorumlock run demo -- sleep 5"))));
    replace(footer, source());
  }

  search.addEventListener("input", () => { wish.search = search.value; update(); list.top(); });
  kinds.addEventListener("change", () => { wish.what = kinds.value; update(); list.top(); });
  return { update, close: list.close };
}
