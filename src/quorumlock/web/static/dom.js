// Makes elements. Text is always text: nothing that a lock is called, or a note says, is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets text only where it differs: a selection survives, and nothing is laid out anew. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Puts other children in; focus stays where it was if an element with the same id comes back. */
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  element.replaceChildren(...children.flat().filter((child) => child));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** A name or note: cut where there is no room, whole in its title. */
export function cut(text, attributes) {
  return el("span", { ...attributes, class: `cut ${attributes?.class ?? ""}`, title: text, dir: "auto" }, text);
}

export function lockLink(name) {
  return el("a", { class: "cut mono", href: lockHref(name), title: name, dir: "auto" }, name);
}

export function lockHref(name) {
  return `#/lock/${encodeURIComponent(name)}`;
}

export function badge(state) {
  return el("span", { class: `badge is-${state}` }, state);
}

export function empty(title, ...hints) {
  return el("div", { class: "empty" }, el("strong", null, title), ...hints.map((hint) => el("p", null, hint)));
}

export function panel(title, ...children) {
  return el("section", { class: "panel" }, el("h2", null, title), ...children);
}

/** A table whose cells are text or elements; columns are [title, class]. */
export function table(columns, rows) {
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      null,
      el("thead", null, el("tr", null, columns.map(([title, kind]) => el("th", { class: kind, scope: "col" }, title)))),
      el(
        "tbody",
        null,
        rows.map((cells) => el("tr", null, cells.map((cell, at) => el("td", { class: columns[at][1] }, cell)))),
      ),
    ),
  );
}
