"use strict";
// What every page does: the theme button, and tables that sort by a column.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("bridgemil-theme"); } catch { return null; } };
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  };
  if (remembered()) root.dataset.theme = remembered();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("bridgemil-theme", root.dataset.theme); } catch { /* a browser may forbid it */ }
    show();
  });
  show();

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const press = document.createElement("button");
      press.append(...head.childNodes);
      head.append(press);
      press.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
        const numeric = [...table.tBodies[0].rows].every((row) => value(row) === "" || !isNaN(value(row)));
        const compare = (a, b) =>
          numeric ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b), "en", { numeric: true });
        const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? compare(a, b) : compare(b, a)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  for (const box of document.querySelectorAll("input[data-only]")) {
    box.addEventListener("change", () => {
      const table = document.getElementById(box.dataset.only);
      if (box.checked) table.closest("details").open = true;
      for (const row of table.tBodies[0].rows) row.hidden = box.checked && !row.classList.contains("always-wrong");
    });
  }

  // The checklist: only what the author must fill in. A heading without a visible item is hidden too.
  document.getElementById("only-author")?.addEventListener("change", (event) => {
    for (const part of document.querySelectorAll(".part")) {
      const items = [...part.querySelectorAll(".item")];
      for (const item of items) item.hidden = event.target.checked && item.dataset.state === "filled";
      part.hidden = items.length > 0 && items.every((item) => item.hidden);
    }
  });
})();
