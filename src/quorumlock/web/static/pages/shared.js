// What several pages say.

import { cut, el, lockLink } from "../dom.js";
import { clock, fence } from "../format.js";
import { store } from "../store.js";

/** Where events come from; said wherever they are shown. */
export function source() {
  if (store.journal) return null;
  return el(
    "p",
    { class: "hint" },
    store.started
      ? `No journal is kept: this is what the dashboard saw itself since ${clock(store.started)}. `
      : "No journal is kept. ",
    "Short holds may be missing, and whether a lock was released or expired is not known. ",
    el("code", null, "connect(…, journal=10000)"),
    " in your programs keeps one.",
  );
}

export const EVENT_COLUMNS = [["Time", "when"], ["What", "what"], ["Lock", "grow"], ["Fence", "number mono"], ["Who", "who"]];

/** Those of one lock need not say which. */
export const ITS_COLUMNS = [["Time", "when"], ["What", "what"], ["Fence", "number mono"], ["Who", "grow"]];

export function eventCells(event, linked = true) {
  return [
    clock(event.at),
    el("span", { class: `badge is-${event.what}` }, event.what),
    linked ? lockLink(event.name) : null,
    fence(event.fence),
    cut([event.who, event.detail].filter(Boolean).join(" · "), { class: "mono" }),
  ].filter((cell) => cell !== null);
}
