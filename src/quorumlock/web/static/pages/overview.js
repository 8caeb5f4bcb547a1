// The fleet in one look: is it well, how busy is it, and what went wrong of late?

import { course } from "../chart.js";
import { badge, el, empty, lockLink, panel, put, replace, table } from "../dom.js";
import { clock, count, plural, rate, small, span } from "../format.js";
import { now, store } from "../store.js";
import { EVENT_COLUMNS, eventCells, source } from "./shared.js";

const LOST = new Set(["expired", "broken", "refused"]);
const TOP = 6;

function tile(label) {
  const value = el("strong", null, "–");
  const more = el("small", null, "");
  return { value, more, box: el("div", { class: "tile" }, el("span", null, label), value, more) };
}

export function overview(main) {
  const tiles = { nodes: tile("Nodes ready"), held: tile("Held"), waiting: tile("Waiting"), acquired: tile("Acquired / s"), lost: tile("Lost / min") };
  const drawing = el("div", { class: "drawing" });
  const nodes = el("div");
  const busy = el("div");
  const long = el("div");
  const lost = el("div");
  const legend = el("p", { class: "legend" }, el("i", { class: "key held" }), "held", el("i", { class: "key waiting" }), "waiting");
  main.append(
    el("h1", { class: "hidden" }, "Overview"),
    el("div", { class: "tiles" }, Object.values(tiles).map((one) => one.box)),
    el(
      "div",
      { class: "columns" },
      panel("Held and waiting", legend, drawing),
      panel("Nodes", nodes),
      panel("Most waited for", busy),
      panel("Held for longest", long),
    ),
    panel("Recently lost, broken or refused", lost),
  );

  function numbers() {
    const ready = store.nodes.filter((node) => node.state === "ready").length;
    const majority = Math.floor(store.nodes.length / 2) + 1;
    put(tiles.nodes.value, store.nodes.length ? `${ready} of ${store.nodes.length}` : "–");
    put(tiles.nodes.more, !store.nodes.length ? "" : ready < majority ? "no majority: nothing is granted" : `${majority} are needed`);
    tiles.nodes.box.dataset.mood = !store.nodes.length || ready === store.nodes.length ? "" : ready < majority ? "bad" : "warn";
    const waiting = [...store.rows.values()].reduce((sum, row) => sum + row.waiting, 0);
    put(tiles.held.value, store.version ? count(store.rows.size) + (store.cut ? "+" : "") : "–");
    put(tiles.held.more, store.cut ? "more than are shown" : "locks");
    put(tiles.waiting.value, store.version ? count(waiting) : "–");
    put(tiles.waiting.more, `for ${plural([...store.rows.values()].filter((row) => row.waiting).length, "lock")}`);
    put(tiles.acquired.value, rate(store.rates.acquired));
    put(tiles.acquired.more, "in the last minute");
    put(tiles.lost.value, rate(store.rates.lost === null || store.rates.lost === undefined ? null : store.rates.lost * 60));
    put(tiles.lost.more, "expired, broken or refused");
    tiles.lost.box.dataset.mood = store.rates.lost > 0 ? "warn" : "";
  }

  function top(rows, key, cells, columns, nothing) {
    return rows.length ? table(columns, rows.map(cells), rows.map((row) => row[key])) : nothing;
  }

  function update() {
    numbers();
    replace(drawing, store.beats.length < 2 ? empty("Watching…", "The course is drawn from the second look on.") : course(store.beats, [["held", "held"], ["waiting", "waiting"]], drawing.clientWidth || 400, `Held and waiting: ${store.beats.at(-1).held} and ${store.beats.at(-1).waiting} now`));
    replace(
      nodes,
      top(
        store.nodes,
        "node",
        (node) => [el("span", { class: "cut mono", title: node.node }, node.node), badge(node.state), small(node.latency)],
        [["Node", "grow"], ["State", ""], ["Latency", "number"]],
        empty("No node has answered yet."),
      ),
    );
    const rows = [...store.rows.values()];
    const waited = rows.filter((row) => row.waiting).sort((a, b) => b.waiting - a.waiting || (a.name < b.name ? -1 : 1)).slice(0, TOP);
    replace(
      busy,
      top(
        waited,
        "name",
        (row) => [lockLink(row.name), count(row.waiting)],
        [["Lock", "grow"], ["Waiting", "number"]],
        empty("Nobody waits for a lock."),
      ),
    );
    const old = rows.filter((row) => row.since).sort((a, b) => a.since - b.since).slice(0, TOP);
    replace(
      long,
      top(
        old,
        "name",
        (row) => [lockLink(row.name), span(now() - row.since)],
        [["Lock", "grow"], ["For", "number"]],
        rows.length
          ? empty("Nobody tells since when.")
          : empty("No lock is held.", el("span", null, "Take one: ", el("code", null, "quorumlock run demo -- sleep 60"))),
      ),
    );
    const bad = store.events.filter((event) => LOST.has(event.what)).slice(-8).reverse();
    replace(
      lost,
      top(bad, "id", (event) => eventCells(event), EVENT_COLUMNS, empty(store.started ? `Nothing since ${clock(store.events[0]?.at ?? store.started)}.` : "Nothing yet.")),
      source(),
    );
  }

  return { update };
}
