"use strict";
// Reads the page again from time to time, and replaces what is live on it. Without this script the page still reads well.
const EVERY = 4000;
const state = document.getElementById("state");
const pause = document.getElementById("pause");
let paused = false;

function keyOf(element) {
  return element.id || element.getAttribute("href") || element.getAttribute("aria-labelledby");
}

function replace(old, fresh) {
  if (old.innerHTML === fresh.innerHTML) return;
  const focused = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  old.replaceWith(fresh);
  fresh.querySelectorAll(".wide").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
  if (focused) {
    const again = [...fresh.querySelectorAll("a, [tabindex]")].find((one) => keyOf(one) === focused);
    if (again) again.focus({ preventScroll: true });
  }
}

async function update() {
  if (!paused && !document.hidden) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      replace(document.getElementById("live"), page.getElementById("live"));
      state.textContent = "";
    } catch {
      state.textContent = "holdfast ui does not answer; this is what it showed last.";
    }
  }
  setTimeout(update, EVERY);
}

pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Update again" : "Pause updates";
});
setTimeout(update, EVERY);
