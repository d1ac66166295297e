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

  // The glossary: where a term first occurs in a section it gets its definition as a tooltip; column heads too.
  const terms = [...document.querySelectorAll("#glossary dt")].map((dt) => [dt.textContent, dt.nextElementSibling.textContent]);
  const definitions = new Map(terms.map(([term, definition]) => [term.toLowerCase(), definition]));
  const names = terms.map(([term]) => term).sort((a, b) => b.length - a.length);
  const pattern = new RegExp(`(?<![\\w+-])(${names.map((name) => name.replace("+", "\\+")).join("|")})(?:s\\b|(?![\\w-]))`, "gi");
  const skipped = "a, button, label, summary, svg, pre, script, output, code, h1, h2, h3, h4, th, dt, figcaption, .term, .glossary";
  for (const section of document.querySelectorAll("header .lead, main section")) {
    const seen = new Set();
    const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(skipped)) nodes.push(walker.currentNode);
    for (const node of nodes) {
      const parts = [];
      let done = 0;
      for (const hit of node.textContent.matchAll(pattern)) {
        const key = hit[1].toLowerCase();
        if (seen.has(key)) continue;
        seen.add(key);
        const term = document.createElement("dfn");
        Object.assign(term, { className: "term", tabIndex: 0, textContent: hit[0] });
        term.dataset.definition = definitions.get(key);
        parts.push(node.textContent.slice(done, hit.index), term);
        done = hit.index + hit[0].length;
      }
      if (parts.length) node.replaceWith(...parts, node.textContent.slice(done));
    }
  }
  for (const head of document.querySelectorAll("thead th")) {
    const definition = definitions.get(head.textContent.trim().toLowerCase().replace(/ %$/, ""));
    if (definition) head.title = definition;
  }
  const tip = document.createElement("div");
  Object.assign(tip, { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const explain = (term) => {
    tip.textContent = term.dataset.definition;
    tip.hidden = false;
    term.setAttribute("aria-describedby", "tip");
    const at = term.getBoundingClientRect(), size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
    tip.style.top = `${at.bottom + size.height + 8 < innerHeight ? at.bottom + 5 : at.top - size.height - 5}px`;
  };
  for (const term of document.querySelectorAll(".term")) {
    for (const event of ["pointerenter", "focus", "click"]) term.addEventListener(event, () => explain(term));
    for (const event of ["pointerleave", "blur"]) term.addEventListener(event, () => { tip.hidden = true; });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
