"use strict";
(() => {
  const root = document.documentElement;
  const find = (selector, within = document) => [...within.querySelectorAll(selector)];
  const views = {};
  let content = null;

  const unpack = async (id) => {
    const text = document.getElementById(id).textContent.trim();
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const load = async () => {
    const [library, data] = await Promise.all([unpack("library"), unpack("figures")]);
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
    const read = JSON.parse(data);
    for (const [name, { columns, rows }] of Object.entries(read.data)) {
      read.data[name] = rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at]])));
    }
    return read;
  };

  // The filter: words that a row must contain, and a safety verdict.
  const filter = { words: [], safety: "" };
  const passes = (text, safety) =>
    filter.words.every((word) => text.toLowerCase().includes(word)) && (!filter.safety || safety === filter.safety);
  const passesRow = (element) => {
    const found = ["SAFE", "LOSES DATA", "NOT SHOWN"].find((word) =>
      find(".outcome", element).some((badge) => badge.textContent.trim().endsWith(word)));
    const named = element.querySelector("th[scope=row]") || element;
    return passes(named.textContent, found);
  };

  const names = (spec, found = new Set()) => {
    if (spec && typeof spec === "object") {
      if (spec.data && spec.data.name) found.add(spec.data.name);
      Object.values(spec).forEach((part) => names(part, found));
    }
    return found;
  };
  const rowsOf = (element, name) => {
    const where = Object.entries(JSON.parse(element.dataset.where));
    return (content.data[name] || []).filter((row) =>
      where.every(([key, value]) => row[key] === undefined || row[key] === value)
      && (!element.dataset.filtered || row.name === undefined || passes(row.name, row.safety)));
  };

  // Names of points: inside of the drawing, each below those that it would cover.
  const moveApart = (element) => {
    const frame = element.querySelector(".role-frame .background");
    const named = find("[class*=' apart_'] text", element).filter((one) => one.textContent.trim());
    if (!frame || !named.length) return;
    const room = frame.getBoundingClientRect();
    const placed = [];
    const covers = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    const boxes = new Map(named.map((one) => [one, one.getBoundingClientRect()]));
    named.sort((one, other) => boxes.get(one).top - boxes.get(other).top);
    for (const text of named) {
      const { left, right, top, width, height } = boxes.get(text);
      const x = Math.max(room.left + 2, Math.min(left, room.right - 2 - width));
      const box = { left: x, right: x + width, top, bottom: top + height };
      for (let other; (other = placed.find((one) => covers(box, one)));) {
        box.top = other.bottom;
        box.bottom = box.top + height;
      }
      placed.push(box);
      if (x !== left || box.top !== top) {
        text.setAttribute("transform", `translate(${x - left}, ${box.top - top}) ${text.getAttribute("transform") || ""}`);
      }
    }
  };

  const draw = async (element) => {
    if (!content || !element.clientWidth) return;
    const width = element.clientWidth;
    element.dataset.drawn = width;
    const spec = structuredClone(content.specs[element.dataset.spec]);
    const params = JSON.parse(element.dataset.params);
    (spec.params || []).forEach((one) => { if (one.name in params) one.value = params[one.name]; });
    spec.width = Math.max(width, 220);
    spec.description = element.getAttribute("aria-label");
    spec.datasets = { ...spec.datasets };
    names(spec).forEach((name) => { spec.datasets[name] ??= rowsOf(element, name); });
    if (views[element.id]) views[element.id].finalize();
    const options = { actions: false, renderer: "svg", mode: "vega-lite", defaultStyle: false, tooltip: { theme: "page" }, logLevel: 1 };
    const drawn = await vegaEmbed(element, spec, options);
    moveApart(element);
    views[element.id] = drawn.view;
    element.dataset.drawn = width;
    find(":scope > details.values[open]", element.parentElement).forEach(tabulate);
  };

  // The values of a chart as a table, for readers who cannot use the drawing.
  const tabulate = (details) => {
    const element = details.parentElement.querySelector(".chart");
    const spec = content && content.specs[element.dataset.spec];
    find("div", details).forEach((one) => one.remove());
    for (const name of spec ? names(spec) : []) {
      const rows = rowsOf(element, name);
      const columns = [...new Set(rows.flatMap(Object.keys))].filter((one) => !["link", "order", "workload"].includes(one));
      const box = document.createElement("div");
      box.className = "scroll";
      box.tabIndex = 0;
      const table = box.appendChild(document.createElement("table"));
      const head = table.createTHead().insertRow();
      columns.forEach((column) => {
        const cell = head.appendChild(document.createElement("th"));
        cell.scope = "col";
        cell.textContent = column.replaceAll("_", " ").replace("axis:", "");
      });
      const body = table.createTBody();
      rows.slice(0, 1000).forEach((row) => {
        const line = body.insertRow();
        columns.forEach((column) => {
          const value = row[column];
          line.insertCell().textContent = value === null || value === undefined ? "-" : String(value);
        });
      });
      details.append(box);
    }
  };

  const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
  }), { rootMargin: "300px" });

  const prepare = (within) => {
    find(".chart", within).forEach((element) => near.observe(element));
    find("details.values", within).forEach((details) => details.addEventListener("toggle", () => {
      if (details.open) tabulate(details);
    }));
    find("select[data-for]", within).forEach((select) => select.addEventListener("change", () => {
      const element = document.getElementById(select.dataset.for);
      const params = JSON.parse(element.dataset.params);
      params[select.name] = select.value;
      element.dataset.params = JSON.stringify(params);
      draw(element);
    }));
  };

  // Parts of a large page that are added when a reader opens them.
  const fill = (details) => {
    const html = content && content.parts[details.id];
    if (!html || details.dataset.filled) return;
    details.dataset.filled = "yes";
    const part = document.createElement("div");
    part.innerHTML = html;
    details.append(part);
    prepare(part);
  };
  const follow = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) {
      if (one.tagName === "DETAILS") { one.open = true; fill(one); }
      one.hidden = false;
    }
    target.scrollIntoView();
  };

  const applyFilter = () => {
    let shown = 0;
    find("table.ranking tbody tr").forEach((row) => {
      if (row.classList.contains("apart")) return;
      row.hidden = !passesRow(row);
      shown += !row.hidden;
    });
    find("#cells > details").forEach((details) => { details.hidden = !passesRow(details.querySelector("summary")); });
    find("#filter output").forEach((output) => { output.textContent = `${shown} shown`; });
    find(".chart[data-filtered]").forEach((element) => { if (element.dataset.drawn) draw(element); });
  };

  const start = async () => {
    root.classList.add("js");
    content = await load();
    find("details[data-part]").forEach((details) => {
      details.addEventListener("toggle", () => { if (details.open) fill(details); });
      if (details.open) fill(details);
    });
    prepare(document);
    find("#filter").forEach((form) => {
      form.addEventListener("submit", (event) => event.preventDefault());
      form.addEventListener("input", () => {
        filter.words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
        filter.safety = form.elements.safety ? form.elements.safety.value : "";
        applyFilter();
      });
    });
    addEventListener("hashchange", follow);
    follow();
    let waiting = 0;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => find(".chart[data-drawn]").forEach((element) => {
        if (Number(element.dataset.drawn) !== element.clientWidth) draw(element);
      }), 150);
    });
    root.dataset.ready = "yes";
    // The charts below the first screen, one after the other: a print shows them, too.
    for (const element of find(".chart")) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      if (!element.dataset.drawn) await draw(element);
    }
    root.dataset.drawn = "yes";
  };
  window.raidproof = { views };
  start();
})();
