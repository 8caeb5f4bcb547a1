// What the page knows: one stream from the server, and who wants to hear of it.

export const store = {
  rows: new Map(),
  nodes: [],
  beats: [],
  events: [],
  rates: {},
  journal: false,
  problem: "",
  notice: "", // what went wrong with what the visitor wanted
  cut: false,
  started: 0,
  version: 0,
  changes: 0, // grows whenever rows change: lists sort anew only then
  live: "connecting",
  session: { can_break: false, login: false, csrf: null, every: 1 },
};

const EVENTS_KEPT = 5000;
const BEATS_KEPT = 300;
const listeners = new Set();
let ahead = 0; // the server's clock, less ours

/** Seconds since 1970, by the server's clock. */
export function now() {
  return Date.now() / 1000 + ahead;
}

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener();
}

export async function ask(path, options) {
  const response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  const told = await response.json().catch(() => ({ error: `${response.status} ${response.statusText}` }));
  if (response.status === 401) location.assign("login");
  if (!response.ok) throw new Error(told.error);
  return told;
}

/** Asks for a change; the server wants to know that it was this page. */
export function change(path, body) {
  const headers = { "content-type": "application/json", "x-csrf-token": store.session.csrf ?? "" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}

function take(told) {
  ahead = told.now - Date.now() / 1000;
  if (told.full) {
    store.rows = new Map(told.locks.map((row) => [row.name, row]));
    store.events = told.events;
    store.beats = told.beats;
    store.changes += 1;
  } else {
    for (const name of told.gone) store.rows.delete(name);
    for (const row of told.locks) store.rows.set(row.name, row);
    if (told.gone.length || told.locks.length) store.changes += 1;
    if (told.events.length) store.events = store.events.concat(told.events).slice(-EVENTS_KEPT);
    store.beats = store.beats.concat(told.beats).slice(-BEATS_KEPT);
  }
  for (const key of ["nodes", "rates", "journal", "problem", "cut", "started", "version"]) store[key] = told[key];
  store.live = "live";
  tell();
}

let stream = null;
let again = 0;

function open() {
  clearTimeout(again);
  stream?.close();
  stream = new EventSource("api/v1/stream");
  stream.onopen = () => {
    if (store.live === "reconnecting") renew().catch(() => {}); // a server that was restarted has other CSRF tokens
  };
  stream.onmessage = (message) => take(JSON.parse(message.data));
  stream.onerror = () => {
    store.live = "reconnecting";
    tell();
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(() => renew().then(open, open), 2000);
  };
}

/** Ends the session; nothing is heard any more, or it says why not. */
export async function leave() {
  clearTimeout(again);
  stream?.close();
  try {
    await change("logout", {}).catch(() => renew().then(() => change("logout", {}))); // perhaps with a new CSRF token
  } catch (error) {
    store.notice = `You are still logged in: ${error.message}`;
    open();
    throw error;
  }
}

/** Listens for ever; a hidden page lets go, so that nothing is sampled for nobody. */
export function listen() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    if (document.hidden) {
      again = setTimeout(() => {
        stream?.close();
        stream = null;
        store.live = "paused";
        tell();
      }, 10000);
    } else if (stream === null || stream.readyState === EventSource.CLOSED) {
      open();
    }
  });
  renew().then(open, open);
}

async function renew() {
  store.session = await ask("api/v1/session");
  tell();
}
