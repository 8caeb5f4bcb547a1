// Finds the page that the address names, draws it, and draws it again when something changes.

import { put } from "./dom.js";
import { leave, listen, onChange, store } from "./store.js";
import { events } from "./pages/events.js";
import { lock } from "./pages/lock.js";
import { locks } from "./pages/locks.js";
import { nodes } from "./pages/nodes.js";
import { overview } from "./pages/overview.js";

const PAGES = { overview, locks, lock, nodes, events };
const main = document.getElementById("main");
const dialog = document.getElementById("dialog");
let page = null; // {update(), close()}
let due = false;

function route() {
  const [, name = "", rest = ""] = location.hash.match(/^#\/([^/?]*)\/?(.*)$/) ?? [];
  const chosen = Object.hasOwn(PAGES, name) ? name : "overview";
  let argument = rest;
  try {
    argument = decodeURIComponent(rest);
  } catch {
    // an address that somebody has cut: it is searched for as it stands
  }
  page?.close?.();
  dialog.close(); // it asks about a page that is left
  main.replaceChildren();
  main.className = `page-${chosen}`;
  page = PAGES[chosen](main, argument);
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.dataset.page === (chosen === "lock" ? "locks" : chosen);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${chosen === "lock" ? argument : chosen} · quorumlock`;
  draw();
}

function draw() {
  due = false;
  const live = document.getElementById("live");
  put(live, store.live);
  live.className = `live is-${store.live}`;
  const problem = document.getElementById("problem");
  put(problem, store.notice || (store.problem && `Not everything is known: ${store.problem}`));
  problem.hidden = !problem.textContent;
  document.getElementById("logout").hidden = !store.session.login;
  page?.update?.();
}

/** Many changes are one drawing. */
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(draw);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the page's
  main.focus();
});
document.getElementById("logout").addEventListener("click", () => leave().then(() => location.assign("login"), soon));
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || dialog.open || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  const search = document.querySelector("main input[type=search]");
  if (search) search.focus();
  else location.hash = "#/locks";
});
window.addEventListener("hashchange", route);
window.addEventListener("resize", soon);
onChange(soon);
setInterval(soon, 1000); // ages grow also while nothing happens
route();
listen();
