// Forces a lock open, after asking whether that is really meant.

import { el } from "../dom.js";
import { fence } from "../format.js";
import { change } from "../store.js";

/** Resolves when the dialog is closed, whatever was chosen. */
export function confirmBreak(lock) {
  const dialog = document.getElementById("dialog");
  const problem = el("p", { class: "wrong", role: "alert" });
  const yes = el("button", { type: "button", class: "danger", id: "dialog-yes" }, "Break it");
  const no = el("button", { type: "button", id: "dialog-no", onclick: () => dialog.close() }, "Leave it");
  const holders = lock.holders.map((holder) =>
    el("li", null, el("span", { class: "mono wrap" }, holder.who || "a holder that does not tell"), `, fence ${fence(holder.fence) || "unknown"}`,
      holder.note ? `, “${holder.note}”` : ""));
  dialog.replaceChildren(
    el("h2", { id: "dialog-title" }, "Break this lock?"),
    el("p", { class: "mono name", dir: "auto" }, lock.name),
    holders.length ? el("ul", null, holders) : el("p", null, `It is ${lock.state}.`),
    el("p", null, "Whoever holds it learns that with its next renewal, and may be at work until then. What it writes is " +
      "refused only where a guard compares fences. Better is to end the holder."),
    problem,
    el("div", { class: "actions" }, no, yes),
  );
  return new Promise((resolve) => {
    dialog.addEventListener("close", resolve, { once: true });
    yes.addEventListener("click", async () => {
      yes.disabled = true;
      try {
        await change("api/v1/lock/break", { name: lock.name, fence: lock.holders.length ? lock.holders[0].fence : 0 });
        dialog.close();
      } catch (error) {
        problem.textContent = error.message;
        yes.disabled = false;
      }
    });
    dialog.showModal();
    no.focus();
  });
}
