// Numbers and times, as people read them.

/** 12s, 4m05s, 3h07m, 2d04h. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m${String(whole % 60).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(hours / 24)}d${String(hours % 24).padStart(2, "0")}h`;
}

/** 0.42 ms, 12 ms, 1.3 s; for offsets with a sign. */
export function small(seconds, signed = false) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  const sign = signed ? (seconds < 0 ? "−" : "+") : "";
  if (size >= 1) return `${sign}${size.toFixed(1)} s`;
  const ms = size * 1000;
  return `${sign}${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
}

export function count(number) {
  return number.toLocaleString("en");
}

export function plural(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(perSecond === 0 ? 0 : 1);
}

/** Time of day, and the day if it is not today. */
export function clock(at) {
  const time = new Date(at * 1000);
  const text = time.toLocaleTimeString("en-GB");
  return time.toDateString() === new Date().toDateString() ? text : `${time.toLocaleDateString("en-CA")} ${text}`;
}

/** Fences have sixteen digits; the last are those that differ. */
export function fence(number) {
  return number === null || number === undefined ? "" : String(number);
}

export function shortFence(number) {
  const text = fence(number);
  return text.length > 7 ? `…${text.slice(-6)}` : text;
}
