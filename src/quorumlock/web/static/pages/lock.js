// One lock: who has it and who had it, who waits, and what each node thinks.

import { timeline } from "../chart.js";
import { badge, cut, el, empty, panel, put, replace, table } from "../dom.js";
import { clock, fence, plural, small, span } from "../format.js";
import { ask, now, store } from "../store.js";
import { confirmBreak } from "./break.js";
import { ITS_COLUMNS, eventCells, source } from "./shared.js";

const RANGES = [[0, "all that is known"], [60, "1 minute"], [300, "5 minutes"], [3600, "1 hour"], [86400, "1 day"]];
let range = 0; // 0: as much as is known

export function lock(main, name) {
  const state = el("span", { class: "badge" }, "…");
  const breaker = el("button", { type: "button", class: "danger", hidden: true, onclick: () => confirmBreak(told.lock).then(refresh) }, "Break…");
  const facts = el("div");
  const waiters = el("div");
  const nodes = el("div");
  const drawing = el("div", { class: "drawing" });
  const holds = el("div");
  const events = el("div");
  const ranges = el("select", { "aria-label": "Range", onchange: () => { range = Number(ranges.value); draw(); } },
    RANGES.map(([seconds, text]) => el("option", { value: seconds, selected: seconds === range }, text)));
  const history = panel("Holders", drawing, holds);
  history.firstChild.append(ranges);
  main.append(
    el("div", { class: "headline" }, el("h1", { class: "mono name", dir: "auto" }, name), state, breaker),
    el("div", { class: "columns" }, panel("Now", facts), panel("Waiting", waiters)),
    history,
    panel("What each node thinks", nodes),
    panel("Events", events),
  );
  let told = null;
  let problem = "";
  let seen = -1;
  let asking = false;
  let closed = false;

  async function refresh() {
    if (asking || closed) return;
    asking = true;
    try {
      told = await ask(`api/v1/lock?name=${encodeURIComponent(name)}`);
      told.received = now();
      problem = "";
    } catch (error) {
      problem = error.message;
    }
    asking = false;
    if (!closed) draw();
  }

  function fact(term, ...value) {
    return [el("dt", null, term), el("dd", null, ...value)];
  }

  function one(holder, found) {
    const left = Math.max(0, holder.remaining - (now() - told.received));
    return el("dl", { class: "facts" },
      fact("Holder", cut(holder.who || "does not tell", { class: "mono" }), holder.where ? el("small", null, ` ${holder.where}`) : null),
      holder.since === null ? null : fact("Held for", span(now() - holder.since), el("small", null, ` since ${clock(holder.since)}`)),
      fact("Ends", `in ${left.toFixed(0)} s`, el("small", null, " unless it is renewed")),
      fact("Fence", el("span", { class: "mono" }, fence(holder.fence) || "none")),
      found.kind ? fact("Kind", found.kind) : null,
      holder.note ? fact("Note", el("span", { dir: "auto", class: "wrap" }, holder.note)) : null);
  }

  function draw() {
    if (!told) {
      replace(facts, problem ? empty("Nothing could be learnt.", problem) : empty("Asking the nodes…"));
      return;
    }
    const found = told.lock;
    put(state, found.state);
    state.className = `badge is-${found.state}`;
    breaker.hidden = !store.session.can_break || found.state === "free";
    replace(facts, problem ? el("p", { class: "wrong" }, problem) : null,
      found.holders.length ? found.holders.map((holder) => one(holder, found))
        : empty({ free: "Nobody holds it.", closed: "It is closed: it was released, and stays shut a little longer.",
          contested: "No majority of nodes says the same: it is being taken, or was left half way." }[found.state] ?? "Nobody is known to hold it."));
    replace(waiters, found.waiters.length
      ? el("ol", { class: "queue" }, found.waiters.slice(0, 20).map((waiter) => el("li", null, cut(waiter.who || "does not tell", { class: "mono" }), waiter.shares ? el("small", null, " to share it") : null)))
      : empty("Nobody waits for it."),
      found.waiters.length > 20 ? el("p", { class: "hint" }, `and ${plural(found.waiters.length - 20, "more", "more")}`) : null);
    replace(nodes, table([["Node", "grow"], ["Says", ""], ["Left", "number"], ["Fence", "number mono"], ["Holder", "number"]],
      found.nodes.map((node) => [cut(node.node, { class: "mono" }), says(node.says), node.remaining ? small(node.remaining) : "", fence(node.fence), node.holder ?? ""]), found.nodes.map((node) => node.node)),
      found.nodes.some((node) => node.holder) ? el("p", { class: "hint" }, "Nodes with the same letter name the same holder.") : null);
    history_();
    const newest = told.events.slice(-20).reverse();
    replace(events, told.events.length
      ? table(ITS_COLUMNS, newest.map((event) => eventCells(event, false)), newest.map((event) => event.id))
      : empty("Nothing is known of its past yet."), source());
  }

  function says(text) {
    return ["free", "held", "shared", "closed"].includes(text) ? badge(text) : cut(text, { class: "wrong" });
  }

  function reach(known, until) {
    const first = Math.min(...known.map((hold) => hold.since ?? hold.until ?? until));
    return Math.max(10, (until - first) * 1.05);
  }

  function history_() {
    const until = now();
    const known = told.timeline;
    const last = known.slice(-12).reverse();
    replace(drawing, known.length ? timeline(known, until, range || reach(known, until), drawing.clientWidth || 600) : empty("No holder is known yet."));
    replace(holds, known.length
      ? table([["Fence", "number mono"], ["Holder", "grow"], ["From", "when"], ["For", "number"], ["End", "what"]],
        last.map((hold) => [
          fence(hold.fence), cut(hold.who || "unknown", { class: "mono" }), hold.since === null ? "before" : clock(hold.since),
          hold.since === null || (hold.end && hold.until === null) ? "" : span((hold.until ?? until) - hold.since), badge(hold.end ?? "held")]),
        last.map((hold) => `${hold.fence} ${hold.who}`))
      : null);
  }

  return {
    update() {
      if (store.version !== seen) {
        seen = store.version;
        refresh();
      } else if (told) {
        draw();
      }
    },
    close() {
      closed = true;
    },
  };
}
