"use strict";
(() => {
  const tip = document.getElementById("tip");
  const keys = [...document.querySelectorAll("button[data-scheme]")];
  const names = new Map(keys.map((key) => [key.dataset.scheme, key.textContent]));

  function toggle(scheme) {
    const hide = keys.some((key) => key.dataset.scheme === scheme && key.getAttribute("aria-pressed") === "true");
    for (const part of document.querySelectorAll(`[data-scheme="${scheme}"]`)) {
      if (part.tagName === "BUTTON") part.setAttribute("aria-pressed", String(!hide));
      else part.classList.toggle("off", hide);
    }
  }

  function nearest(chart, dots, event) {
    const box = chart.getBoundingClientRect();
    const scale = chart.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const along = chart.dataset.along;
    let found = null, least = Infinity;
    for (const dot of dots) {
      const far = Math.hypot(along.includes("x") ? dot.dataset.x - x : 0, along.includes("y") ? dot.dataset.y - y : 0);
      if (far < least) [found, least] = [dot, far];
    }
    return found;
  }

  function line(dot) {
    const scheme = dot.closest("[data-scheme]").dataset.scheme;
    const row = document.createElement("div"), swatch = document.createElement("i");
    swatch.className = dot.closest("[data-scheme]").getAttribute("class").split(" ").pop();
    row.append(swatch, `${names.get(scheme)}: ${dot.dataset.tip}`);
    return row;
  }

  function clear(chart) {
    chart.classList.remove("aimed");
    for (const dot of chart.querySelectorAll(".near")) dot.classList.remove("near");
    tip.hidden = true;
  }

  function aim(chart, event) {
    clear(chart);
    const dots = [...chart.querySelectorAll(".series:not(.off) .dot")];
    const found = nearest(chart, dots, event);
    if (!found) return;
    const same = dots.filter((dot) => dot.dataset.at === found.dataset.at);
    const head = document.createElement("b");
    head.textContent = found.dataset.at;
    tip.replaceChildren(head, ...same.map(line));
    for (const dot of same) dot.classList.add("near");
    const cross = chart.querySelector(".cross");
    if (cross && chart.dataset.along === "x") {
      cross.setAttribute("x1", found.dataset.x);
      cross.setAttribute("x2", found.dataset.x);
      chart.classList.add("aimed");
    }
    tip.hidden = false;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(8, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8))}px`;
  }

  for (const key of keys) key.addEventListener("click", () => toggle(key.dataset.scheme));
  for (const chart of document.querySelectorAll("svg[data-along]")) {
    chart.addEventListener("pointermove", (event) => aim(chart, event));
    chart.addEventListener("pointerdown", (event) => aim(chart, event));
    chart.addEventListener("pointerleave", () => clear(chart));
  }
})();
