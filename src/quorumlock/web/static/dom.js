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

/**
 * Makes the children of an element like these, and changes only what differs: focus and selection stay. What has a
 * `data-key` is known by it, all else by its place. Listeners of what stays are not replaced.
 */
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  adopt(element, children.flat().filter((child) => child));
  if (focused?.isConnected) focused.focus({ preventScroll: true }); // it was moved
}

function adopt(element, wanted) {
  const before = named([...element.childNodes]);
  const after = named(wanted);
  for (const [name, child] of before) if (!after.has(name)) child.remove(); // first: what stays need not move then
  let place = element.firstChild;
  for (const [name, child] of after) {
    const kept = before.get(name);
    if (kept) resemble(kept, child);
    if (kept && kept === place) place = place.nextSibling;
    else element.insertBefore(kept ?? child, place);
  }
}

function named(children) {
  const found = new Map();
  children.forEach((child, at) => {
    let name = child.dataset?.key === undefined ? `${child.nodeName} ${at}` : `key ${child.dataset.key}`;
    while (found.has(name)) name += " again";
    found.set(name, child);
  });
  return found;
}

function resemble(kept, wanted) {
  if (kept.nodeType === Node.TEXT_NODE) {
    put(kept, wanted.data);
    return;
  }
  for (const { name } of [...kept.attributes]) if (!wanted.hasAttribute(name)) kept.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (kept.getAttribute(name) !== value) kept.setAttribute(name, value);
  adopt(kept, [...wanted.childNodes]);
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

/** A table whose cells are text or elements; columns are [title, class], `keys` what rows are known by. */
export function table(columns, rows, keys = []) {
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
        rows.map((cells, row) => el("tr", { "data-key": keys[row] }, cells.map((cell, at) => el("td", { class: columns[at][1] }, cell)))),
      ),
    ),
  );
}
