// The nodes: do they answer, how quickly, do their clocks agree, do they grant?

import { sparkline } from "../chart.js";
import { badge, cut, el, empty, replace, table } from "../dom.js";
import { small, span } from "../format.js";
import { store } from "../store.js";

const COLUMNS = [["Node", "grow"], ["State", ""], ["Latency", "number"], ["Last minute", "spark-cell"], ["Clock", "number"],
  ["Quarantine", "number"], ["Server", ""], ["Remarks", "remarks"]];

export function nodes(main) {
  const body = el("div");
  main.append(
    el("h1", { class: "hidden" }, "Nodes"),
    el("section", { class: "panel" }, el("h2", null, "Nodes"), body,
      el("p", { class: "hint" }, "Clock: the node's, less that of the dashboard's machine. Quarantine: how long a node that may have forgotten locks still grants none.")),
  );

  function update() {
    replace(body, !store.nodes.length ? empty(store.version ? "No node is known." : "Asking the nodes…") : table(COLUMNS, store.nodes.map((node) => [
      cut(node.node, { class: "mono" }),
      badge(node.state),
      small(node.latency),
      sparkline(node.latencies, { label: `Latency of ${node.node}: ${small(node.latency)} now` }),
      node.clock_offset === null ? "–" : small(node.clock_offset, true),
      node.quarantine ? span(node.quarantine) : "–",
      [node.server, node.version, node.role].filter(Boolean).join(" ") || "–",
      el("span", { class: "wrap" }, node.detail || ""),
    ]), store.nodes.map((node) => node.node)));
  }

  return { update };
}
