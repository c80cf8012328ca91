"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("triegp-theme"); } catch { return null; } };
  const shown = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const label = () => {
    button.textContent = shown() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  };
  const before = stored();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.hidden = false;
  label();
  system.addEventListener("change", label);
  button.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    try { localStorage.setItem("triegp-theme", root.dataset.theme); } catch { /* not kept */ }
    label();
  });
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const click = document.createElement("button");
      click.type = "button";
      click.append(...head.childNodes);
      head.append(click);
      click.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => {
          const cell = row.cells[column];
          return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
        };
        const compare = (a, b) => {
          const [x, y] = [value(a), value(b)];
          return typeof x === "number" ? x - y : x.localeCompare(y);
        };
        const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
