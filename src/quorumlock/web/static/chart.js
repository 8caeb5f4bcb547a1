// Small drawings: lines of numbers, and who held a lock from when to when.

import { svg } from "./dom.js";
import { clock, fence, shortFence, span } from "./format.js";

/** A line of numbers, some of which may be missing (null): there it is broken. */
export function sparkline(values, { width = 160, height = 28, label = "" } = {}) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(at * step).toFixed(1)} ${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`;
    pen = "L";
  });
  const missing = values
    .map((value, at) => (value === null ? svg("rect", { class: "gap", x: at * step - step / 2, y: height - 3, width: step || 2, height: 3 }) : null))
    .filter(Boolean);
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    missing,
    known.length > 1 ? svg("path", { d: path, class: "line" }) : null,
  );
}

/** Several numbers over time, as areas and lines with one scale; `lines`: [[key, class]]. */
export function course(beats, lines, width, label, height = 150) {
  const left = 34;
  const bottom = 18;
  const drawing = svg("svg", { class: "course", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (beats.length < 2) return drawing;
  const from = beats[0].at;
  const until = beats[beats.length - 1].at;
  const most = nice(Math.max(1, ...beats.flatMap((beat) => lines.map(([key]) => beat[key]))));
  const x = (at) => left + ((at - from) / (until - from || 1)) * (width - left - 4);
  const y = (value) => 6 + (1 - value / most) * (height - bottom - 6);
  for (const value of [0, most / 2, most]) {
    drawing.append(
      svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      svg("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    );
  }
  for (const [key, kind] of lines) {
    const points = beats.map((beat) => `${x(beat.at).toFixed(1)} ${y(beat[key]).toFixed(1)}`);
    drawing.append(
      svg("path", { class: `area ${kind}`, d: `M${x(from)} ${y(0)}L${points.join("L")}L${x(until)} ${y(0)}Z` }),
      svg("path", { class: `line ${kind}`, d: `M${points.join("L")}` }),
    );
  }
  drawing.append(
    svg("text", { class: "axis", x: left, y: height - 4 }, clock(from)),
    svg("text", { class: "axis", x: width - 2, y: height - 4, "text-anchor": "end" }, clock(until)),
  );
  return drawing;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((one) => one * power >= value);
  return Math.max(2, step * power);
}

function short(value) {
  return value >= 1000 ? `${value / 1000}k` : String(value);
}

const LANES_MOST = 10;

/** Holds as bars, a lane for each holder; `holds` old to new, `until`: now. */
export function timeline(holds, until, seconds, width) {
  const from = until - seconds;
  const seen = holds.filter((hold) => (hold.until ?? (hold.end ? hold.since : until)) >= from);
  const lanes = [...new Set(seen.map((hold) => hold.who).reverse())].slice(0, LANES_MOST);
  const left = Math.min(180, Math.max(90, width * 0.22));
  const lane = 26;
  const height = Math.max(1, lanes.length) * lane + 24;
  const x = (at) => left + (Math.max(0, at - from) / seconds) * (width - left - 8);
  const drawing = svg("svg", {
    class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Who held the lock in the last ${span(seconds)}; the same is in the table below`,
  });
  for (let part = 0; part <= 4; part += 1) {
    const at = from + (seconds * part) / 4;
    const anchor = part === 0 ? "start" : part === 4 ? "end" : "middle";
    if (width < 500 && part % 2) continue;
    drawing.append(
      svg("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - 20 }),
      svg("text", { class: "axis", x: x(at), y: height - 5, "text-anchor": anchor }, part === 4 ? "now" : `−${span(until - at)}`),
    );
  }
  lanes.forEach((who, at) => {
    const label = who || "unknown";
    const room = Math.floor((left - 10) / 6.6);
    const text = label.length > room ? `${label.slice(0, room - 1)}…` : label;
    drawing.append(svg("text", { class: "lane", x: 0, y: at * lane + 17 }, svg("title", null, label), text));
  });
  for (const hold of seen) {
    const at = lanes.indexOf(hold.who);
    if (at < 0) continue;
    const begin = x(hold.since ?? from);
    const end = x(hold.until ?? (hold.end ? hold.since ?? from : until));
    const wide = Math.max(3, end - begin);
    const how = hold.end ?? "held";
    const told = `${hold.who || "unknown"}, fence ${fence(hold.fence) || "unknown"}: ${
      hold.since === null ? "from before" : clock(hold.since)} to ${
      hold.end === null ? "now" : hold.until === null ? "unknown" : clock(hold.until)}, ${how}`;
    drawing.append(
      svg(
        "g",
        { class: `hold is-${how}` },
        svg("title", null, told),
        svg("rect", { x: begin, y: at * lane + 4, width: wide, height: lane - 8, rx: 3 }),
        wide > 62 ? svg("text", { x: begin + 6, y: at * lane + 17 }, shortFence(hold.fence)) : null,
      ),
    );
  }
  return drawing;
}
