// Shows the progress of running runs, and loads the page again when a run begins or ends.
"use strict";

const known = new Set([...document.querySelectorAll("[data-run]")].map((row) => row.dataset.run));

function words(progress) {
  if (progress === null) return "no progress reported yet";
  const of = progress.total === null ? "" : ` of ${progress.total.toLocaleString("en-US")}`;
  const left = progress.left_s === null ? "" : `; about ${Math.ceil(progress.left_s / 60)} min left`;
  return `${progress.current}; ${progress.done.toLocaleString("en-US")}${of} ${progress.unit} done${left}`;
}

async function poll() {
  try {
    const found = await (await fetch("/live.json")).json();
    const names = found.map((one) => one.run);
    if (names.some((name) => !known.has(name)) || [...known].some((name) => !names.includes(name))) {
      location.reload();
      return;
    }
    for (const one of found) {
      const row = document.querySelector(`[data-run="${CSS.escape(one.run)}"]`);
      row.querySelector("p").textContent = words(one.progress);
      const bar = row.querySelector("progress");
      if (one.progress !== null && one.progress.total) {
        bar.max = one.progress.total;
        bar.value = one.progress.done;
      } else bar.removeAttribute("value");
    }
    document.getElementById("lost").hidden = true;
  } catch {
    document.getElementById("lost").hidden = false;
  }
  setTimeout(poll, 1000);
}

poll();
