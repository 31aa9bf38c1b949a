"use strict";
(() => {
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll("tr[data-key]")];
  const texts = rows.map((row) => `${row.dataset.key} ${row.dataset.action || ""} ${row.textContent}`.toLowerCase());
  const details = [...document.querySelectorAll("details")];
  const sections = document.querySelectorAll("section");

  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, number) => {
      row.hidden = !words.every((word) => texts[number].includes(word));
      count += row.hidden ? 0 : 1;
    });
    sections.forEach((one) => {
      one.hidden = words.length > 0 && !one.querySelector("tr[data-key]:not([hidden])");
    });
    shown.value = `${count} of ${rows.length}`;
  }

  function unfold(open) {
    details.forEach((one) => { one.open = open; });
  }

  filter.addEventListener("input", apply);
  document.getElementById("unfold").addEventListener("click", () => unfold(true));
  document.getElementById("fold").addEventListener("click", () => unfold(false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== filter) {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "Escape" && document.activeElement === filter) {
      filter.value = "";
      apply();
    }
  });

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = details.filter((one) => !one.open);
    unfold(true);
  });
  window.addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
  apply();
})();
