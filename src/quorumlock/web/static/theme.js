// Light, dark, or as the system has it. Loaded before the page is drawn, so that nothing flashes.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;

  function remembered() {
    try {
      return localStorage.getItem("quorumlock-theme");
    } catch {
      return null; // storage is forbidden: then it is forgotten
    }
  }

  function wear(theme) {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `theme: ${theme}`;
  }

  wear(THEMES.includes(remembered()) ? remembered() : "auto");
  document.addEventListener("DOMContentLoaded", () => {
    wear(root.dataset.theme);
    document.getElementById("theme")?.addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
      wear(next);
      try {
        localStorage.setItem("quorumlock-theme", next);
      } catch {
        // forgotten with the page
      }
    });
  });
})();
