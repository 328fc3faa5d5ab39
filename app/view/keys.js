// The keyboard: every view is a link, and a key follows it.
"use strict";
document.addEventListener("keydown", (event) => {
  const at = document.activeElement;
  const writes = at && ["INPUT", "SELECT", "TEXTAREA"].includes(at.tagName);
  if (event.key === "Escape" && writes) return at.blur();
  if (writes || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...document.querySelectorAll(".rows li > a")];
  const step = { j: 1, k: -1 }[event.key];
  if (step && rows.length) {
    const next = rows[rows.indexOf(at) + step] || rows[step > 0 ? 0 : rows.length - 1];
    next.focus();
  } else if (event.key === "/") {
    const field = document.querySelector("input[name=text]");
    if (field) field.focus(); else location.href = "/search";
  } else if (event.key === "?") {
    const keys = document.getElementById("keys");
    keys.open = !keys.open;
  } else if (event.key === "b") {
    history.back();
  } else {
    const link = /^[a-z]$/.test(event.key) && document.querySelector(`a[data-key="${event.key}"]`);
    if (!link) return;
    link.click();
  }
  event.preventDefault();
});
