// The crash page: moves a power cut along a part of a write log, and shows what the chosen writes make of the disks.
// All facts come from the data in the page (raidproof.record.crash_page); this program only applies the selection.
"use strict";

const ROWS_SHOWN = 40;
const WRITES_SHOWN = 120;
const FILES_SHOWN = 40;
const BLOCK = 4096;
const BATCH_S = 0.002;
const WORDS = { write: "write", zero: "zeroes", discard: "discard", superblock: "md superblock",
  metadata: "md metadata (bitmap)", data: "data", unknown: "outside of an array", parity: "parity", Q: "parity Q",
  unused: "unused" };

const grouped = (number) => number.toLocaleString("en-US");
const plural = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
const seconds = (value) => `${value.toFixed(4)} s`;

/* ---------------------------------------------------------------- the data */

async function unpacked(text) {
  const packed = bytesOf(text);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function bytesOf(base64) {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  return bytes;
}

/* What the disks hold for one cut and one choice of surviving writes. */
class Disks {
  constructor(data) {
    this.data = data;
    this.hashes = new DataView(bytesOf(data.hashes).buffer);
    this.index = new Map(data.requests.map((one, place) => [one.number, place]));
    // For each unit the requests that change it, in the order of their numbers.
    this.writers = Array.from({ length: data.units }, () => []);
    data.requests.forEach((one, place) => one.units.forEach((unit, position) => {
      this.writers[unit].push({ place, hash: one.hashes === null ? null : one.hashes + position * data.equations });
    }));
  }

  /* Requests that may survive or be lost at a cut, by their places in data.requests. */
  open(cut) {
    const found = [];
    this.data.requests.forEach((one, place) => {
      if (one.opens <= cut && (one.sure === null || one.sure > cut)) found.push(place);
    });
    return found;
  }

  /* Set the cut and the survivors. kept: numbers of surviving open requests; torn: units by number. */
  set(cut, kept, torn) {
    this.torn = torn;
    this.present = this.data.requests.map((one) =>
      (one.sure !== null && one.sure <= cut) || (one.opens <= cut && kept.has(one.number)));
  }

  /* The request that last changed a unit, or null for the content at the beginning of the page's log. */
  writer(unit) {
    const writers = this.writers[unit];
    for (let at = writers.length - 1; at >= 0; at -= 1) {
      const one = writers[at];
      if (!this.present[one.place]) continue;
      const torn = this.torn.get(this.data.requests[one.place].number);
      if (torn === undefined || torn.has(unit)) return one;
    }
    return null;
  }

  /* The hash of a block for one equation, as two numbers of 32 bits: the XOR over its units. */
  hash(block, equation) {
    let high = 0;
    let low = 0;
    const { unit, units } = this.data.blocks[block];
    for (let one = unit; one < unit + units; one += 1) {
      const writer = this.writer(one);
      if (writer !== null && writer.hash === null) continue;
      const at = 8 * (equation + (writer === null ? one * this.data.equations : writer.hash));
      high ^= this.hashes.getUint32(at);
      low ^= this.hashes.getUint32(at + 4);
    }
    return [high >>> 0, low >>> 0];
  }

  /* What md makes of the superblocks; null if this combination was not computed. */
  assembly() {
    const key = this.data.superblocks.map((block) =>
      this.hash(block, 0).map((half) => half.toString(16).padStart(8, "0")).join("")).join("");
    const found = this.data.assembled[key];
    return found === undefined ? null : this.data.assemblies[found];
  }

  /* The offsets in the array of the inconsistent pages of a row. */
  differing(row, assembly) {
    if (row.copies.length > 0) {
      return row.copies.filter((page) => {
        const seen = page.places.filter(([slot]) => assembly.present.includes(slot))
          .map(([, block]) => this.hash(block, 0).join());
        return new Set(seen).size > 1;
      }).map((page) => page.offset);
    }
    for (let equation = 0; equation < this.data.parities; equation += 1) {
      if (this.sum(row, equation, row.blocks.map((_, slot) => slot)).some((half) => half !== 0)) return [row.offset];
    }
    return [];
  }

  sum(row, equation, slots) {
    let high = 0;
    let low = 0;
    for (const slot of slots) {
      if (row.blocks[slot] === null) continue;
      const [one, other] = this.hash(row.blocks[slot], equation);
      high ^= one;
      low ^= other;
    }
    return [high >>> 0, low >>> 0];
  }
}

/* ---------------------------------------------------------------- the reader's choice */

class Choice {
  constructor(data, disks) {
    this.data = data;
    this.disks = disks;
    this.states = new Map(data.states.map((one) => [this.key(one.cut, one.survivors, one.torn), one]));
    this.cut = data.first;
    this.keepsAll = false;
    this.own = new Map();
    this.torn = new Map();
  }

  key(cut, numbers, torn) {
    const parts = Object.entries(torn).map(([number, units]) => `${number}:${[...units].sort((a, b) => a - b)}`).sort();
    return `${cut}|${numbers}|${parts.join(";")}`;
  }

  keeps(number) {
    return this.own.has(number) ? this.own.get(number) : this.keepsAll;
  }

  move(cut) {
    this.cut = Math.min(Math.max(Math.round(cut), this.data.first), this.data.last);
    this.torn = new Map();
  }

  all(keepsAll) {
    this.keepsAll = keepsAll;
    this.own = new Map();
    this.torn = new Map();
  }

  set(number, keeps) {
    this.own.set(number, keeps);
    this.torn.delete(number);
  }

  load(state) {
    this.cut = state.cut;
    this.keepsAll = false;
    this.own = new Map(state.survivors.map((number) => [number, true]));
    this.torn = new Map(Object.entries(state.torn).map(([number, units]) => [Number(number), new Set(units)]));
  }

  /* Everything that the page shows, computed anew. */
  result() {
    const { data, disks, cut } = this;
    const open = disks.open(cut).map((place) => data.requests[place]);
    const kept = open.filter((one) => this.keeps(one.number));
    const numbers = new Set(kept.map((one) => one.number));
    disks.set(cut, numbers, this.torn);
    const assembly = data.no_array === null ? disks.assembly() : null;
    const touched = new Set(open.flatMap((one) => one.units));
    const compared = assembly !== null && assembly.compared && data.equations > 0;
    const rows = data.rows.map((row, place) => {
      const blocks = [...row.blocks.filter((one) => one !== null), ...row.copies.flatMap((p) => p.places.map((q) => q[1]))];
      const isTouched = blocks.some((block) => {
        const { unit, units } = data.blocks[block];
        for (let one = unit; one < unit + units; one += 1) if (touched.has(one)) return true;
        return false;
      });
      return { row, place, touched: isTouched, differing: compared ? disks.differing(row, assembly) : [] };
    });
    const missing = assembly === null || data.parities === 0 ? []
      : data.slots.map((_, slot) => slot).filter((slot) => !assembly.present.includes(slot));
    if (missing.length === 1) this.reconstruct(rows, missing[0]);
    const torn = Object.fromEntries([...this.torn]);
    const state = this.states.get(this.key(cut, kept.map((one) => one.number), torn)) ?? null;
    return { cut, at: data.instants_s[cut - data.first], open, kept, numbers, assembly, compared, rows, missing, state,
      acknowledged: data.operations.filter((one) => one.since <= cut) };
  }

  /* Compare the content that parity gives a missing chunk with that before and after each batch of writes of its row.
     md issues the writes of one stripe within less than BATCH_S; between two batches data and parity fit. */
  reconstruct(rows, missing) {
    const { disks, cut } = this;
    const slots = this.data.slots.map((_, slot) => slot).filter((slot) => slot !== missing);
    const isData = (row) => this.data.stripes[row.stripe].parts[missing] === "data";
    for (const one of rows.filter((found) => found.touched && isData(found.row))) {
      const now = disks.sum(one.row, 0, slots).join();
      const { present, torn } = disks;
      disks.torn = new Map();
      const sums = this.batches(one.row, cut).map((places) => {
        disks.present = places;
        return disks.sum(one.row, 0, slots).join();
      });
      [disks.present, disks.torn] = [present, torn];
      const found = sums.lastIndexOf(now);
      one.rebuilt = found < 0 ? "neither" : found === sums.length - 1 ? "after" : "before";
    }
  }

  /* The present requests before the first batch of a row with an open write, and after each batch until the last one. */
  batches(row, cut) {
    const places = new Set();
    for (const block of row.blocks.filter((one) => one !== null)) {
      const { unit, units } = this.data.blocks[block];
      for (let one = unit; one < unit + units; one += 1) this.disks.writers[one].forEach(({ place }) => places.add(place));
    }
    const requests = [...places].map((place) => ({ place, ...this.data.requests[place] }))
      .sort((one, other) => one.issued_s - other.issued_s);
    const batches = [];
    for (const one of requests) {
      const last = batches.at(-1);
      if (last && one.issued_s < last.end + BATCH_S) last.requests.push(one);
      else batches.push({ requests: [one], end: 0 });
      batches.at(-1).end = one.issued_s;
    }
    const isOpen = (one) => one.opens <= cut && (one.sure === null || one.sure > cut);
    const open = batches.map((batch) => batch.requests.some(isOpen));
    const found = [];
    const present = new Array(this.data.requests.length).fill(false);
    batches.forEach((batch, place) => {
      if (place === open.indexOf(true)) found.push([...present]);
      batch.requests.forEach((one) => { present[one.place] = true; });
      if (place >= open.indexOf(true) && place <= open.lastIndexOf(true)) found.push([...present]);
    });
    return found;
  }
}

/* ---------------------------------------------------------------- elements */

const at = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "line", "path", "text", "title", "circle"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

class Page {
  constructor(data) {
    this.data = data;
    this.disks = new Disks(data);
    this.choice = new Choice(data, this.disks);
    this.span = 60;
    this.center = null;
    this.allRows = false;
    this.atCut = new Map();
    data.states.forEach((one) => this.atCut.set(one.cut, (this.atCut.get(one.cut) ?? 0) + 1));
    this.numbers = new Map(data.requests.map((one) => [one.number, one]));
    this.events = new Map(data.events.map((one) => [one.number, one]));
    this.acknowledgedAt = new Map();
    data.operations.forEach((one) => this.acknowledgedAt.set(one.since, (this.acknowledgedAt.get(one.since) ?? 0) + 1));
    this.bind();
    this.listStates();
    if (!this.goTo(location.hash)) {
      const worst = (one) => [one.smallest_of !== null, one.outcome === "FAIL", one.differ ?? 0];
      const first = [...data.states].sort((one, other) => {
        const [mine, theirs] = [worst(one), worst(other)];
        const place = mine.findIndex((value, at) => value !== theirs[at]);
        return place < 0 ? 0 : Number(theirs[place]) - Number(mine[place]);
      })[0];
      if (first) this.choice.load(first);
      this.draw();
    }
  }

  goTo(hash) {
    const name = decodeURIComponent(hash.replace(/^#/, ""));
    const state = this.data.states.find((one) => one.name === name);
    if (state) this.choice.load(state);
    else if (/^cut-\d+$/.test(name)) this.choice.move(Number(name.slice(4)));
    else return false;
    this.center = null;
    this.draw();
    return true;
  }

  bind() {
    const slider = at("cut");
    slider.min = this.data.first;
    slider.max = this.data.last;
    slider.addEventListener("input", () => this.move(Number(slider.value)));
    const actions = {
      drop: () => this.choice.all(false),
      keep: () => this.choice.all(true),
      "flush-before": () => this.choice.move(this.flush(-1)),
      "flush-after": () => this.choice.move(this.flush(1)),
      smallest: () => this.choice.load(this.nextSmallest()),
    };
    for (const [id, action] of Object.entries(actions)) {
      at(id)?.addEventListener("click", () => { action(); this.center = null; this.draw(); });
    }
    at("all-rows").addEventListener("click", () => { this.allRows = !this.allRows; this.draw(); });
    window.addEventListener("hashchange", () => this.goTo(location.hash));
    window.addEventListener("resize", () => this.draw());
    document.addEventListener("keydown", (event) => this.key(event));
    this.drag(at("detail"), (x, width) => this.from + (x / width) * (this.to - this.from));
    this.drag(at("whole"), (x, width) => this.data.first + (x / width) * (this.data.last - this.data.first));
  }

  drag(element, cutAt) {
    const move = (event) => {
      const box = element.getBoundingClientRect();
      const left = element.id === "detail" ? this.left : 0;
      const x = Math.min(Math.max(event.clientX - box.left - left, 0), box.width - left);
      this.choice.move(cutAt(x, box.width - left));
      this.draw();
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      this.held = element.id === "detail";
      move(event);
    });
    element.addEventListener("pointermove", (event) => { if (element.hasPointerCapture(event.pointerId)) move(event); });
    const end = () => { this.held = false; this.center = null; this.draw(); };
    element.addEventListener("pointerup", end);
    element.addEventListener("pointercancel", end);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.matches("input:not([type=checkbox]), select, textarea")) return;
    const step = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      this.move(this.choice.cut + (event.key === "ArrowLeft" ? -step : step));
    } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && target.matches("#writes input")) {
      event.preventDefault();
      const boxes = [...document.querySelectorAll("#writes input")];
      boxes[boxes.indexOf(target) + (event.key === "ArrowUp" ? -1 : 1)]?.focus();
    }
  }

  move(cut) {
    this.choice.move(cut);
    this.draw();
  }

  flush(direction) {
    const numbers = this.data.events.filter((one) => one.kind === "flush").map((one) => one.number + 1);
    const found = direction > 0 ? numbers.find((one) => one > this.choice.cut)
      : numbers.reverse().find((one) => one < this.choice.cut);
    return found ?? (direction > 0 ? this.data.last : this.data.first);
  }

  nextSmallest() {
    const found = this.data.states.filter((one) => one.smallest_of !== null);
    const now = found.indexOf(this.now.state);
    return found[(now + 1) % found.length];
  }

  /* ------------------------------------------------------------ drawing */

  draw() {
    this.now = this.choice.result();
    at("cut").value = this.now.cut;
    at("cut").setAttribute("aria-valuetext", `after request ${grouped(this.now.cut)}, ${seconds(this.now.at)}`);
    at("cut-text").textContent =
      `after request ${grouped(this.now.cut)} of ${grouped(this.data.of)}, ${seconds(this.now.at)} after the log began`;
    this.drawWhole();
    this.drawDetail();
    this.drawTiles();
    this.drawWrites();
    this.drawRows();
    this.drawFound();
    this.drawFiles();
    this.markState();
  }

  drawWhole() {
    const canvas = at("whole");
    const width = canvas.clientWidth;
    const height = 44;
    const scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const style = getComputedStyle(canvas);
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const x = (cut) => ((cut - this.data.first) / Math.max(1, this.data.last - this.data.first)) * width;
    const bins = new Array(Math.max(1, Math.ceil(width))).fill(0);
    this.data.operations.forEach((one) => {
      if (one.since >= this.data.first) bins[Math.min(bins.length - 1, Math.floor(x(one.since)))] += 1;
    });
    const most = Math.max(1, ...bins);
    paint.fillStyle = style.getPropertyValue("--after");
    bins.forEach((count, place) => { if (count) paint.fillRect(place, 20 - (18 * count) / most, 1, (18 * count) / most); });
    for (const one of this.data.states) {
      const bad = one.outcome === "FAIL";
      paint.strokeStyle = paint.fillStyle = style.getPropertyValue(bad ? "--fail" : "--kept");
      const place = x(one.cut);
      if (bad) {
        paint.lineWidth = 2;
        paint.beginPath();
        paint.moveTo(place - 4, 27); paint.lineTo(place + 4, 37); paint.moveTo(place + 4, 27); paint.lineTo(place - 4, 37);
        paint.stroke();
      } else {
        paint.beginPath(); paint.arc(place, 32, 2, 0, 7); paint.fill();
      }
    }
    paint.fillStyle = style.getPropertyValue("--ink");
    paint.fillRect(Math.min(width - 3, Math.max(0, x(this.now.cut) - 1.5)), 0, 3, height);
  }

  drawDetail() {
    const svg = at("detail");
    const width = svg.clientWidth || 900;
    const narrow = width < 560;
    this.left = narrow ? 44 : 92;
    this.span = Math.max(12, Math.floor((width - this.left) / 13));
    const { cut } = this.now;
    if (this.center === null || cut <= this.from + 1 || cut >= this.to - 1) {
      if (!this.held || this.center === null) this.center = cut;
    }
    this.from = this.center - this.span / 2;
    this.to = this.center + this.span / 2;
    const lane = 26;
    const top = 34;
    const lanes = this.data.members.length;
    const bottom = top + (lanes + 1) * lane;
    const x = (place) => this.left + ((place - this.from) / (this.to - this.from)) * (width - this.left);
    svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 8}`);
    svg.setAttribute("height", bottom + 8);
    svg.replaceChildren();
    const put = (...one) => svg.append(make(...one));
    const past = x(cut);
    put("rect", { x: past, y: top - 6, width: Math.max(0, width - past), height: bottom - top + 6, class: "unborn" });
    for (let member = 0; member <= lanes; member += 1) {
      const y = top + member * lane + lane / 2;
      put("line", { x1: this.left, x2: width, y1: y, y2: y, class: "lane" });
      put("text", { x: 2, y: y + 4, class: "soft" },
        member === lanes ? (narrow ? "acks" : "clients") : this.data.members[member]);
    }
    for (let number = Math.ceil(this.from); number < this.to; number += 1) {
      const middle = x(number + 0.5);
      const request = this.numbers.get(number);
      const event = this.events.get(number);
      const acknowledged = this.acknowledgedAt.get(number);
      if (acknowledged && number >= this.data.first) {
        const y = top + lanes * lane + lane / 2;
        svg.append(make("g", {}, make("title", {}, `${plural(acknowledged, "operation")} acknowledged`),
          make("circle", { cx: x(number), cy: y, r: 4, class: "acknowledged" })));
      }
      if (request) this.drawRequest(svg, request, middle, top + request.member * lane + lane / 2);
      if (event) this.drawEvent(svg, event, middle, top, lane, lanes);
    }
    put("line", { x1: past, x2: past, y1: 16, y2: bottom, class: "cut" });
    put("path", { d: `M${past - 7} 8h14v8l-7 8l-7 -8z`, class: "handle" });
    const right = past > width - 100;
    put("text", { x: right ? past - 12 : past + 12, y: 20, class: "strong", "text-anchor": right ? "end" : "start" },
      "power cut");
  }

  drawRequest(svg, request, x, y) {
    const { cut } = this.now;
    const kind = request.number >= cut && request.opens > cut ? "future"
      : request.sure !== null && request.sure <= cut ? "sure" : this.choice.keeps(request.number) ? "kept" : "lost";
    const group = make("g", { class: `request ${kind}` }, make("title", {}, this.named(request)));
    if (request.forced) group.append(make("path", { d: `M${x} ${y - 7}l7 7l-7 7l-7 -7z` }));
    else group.append(make("rect", { x: x - 5, y: y - 5, width: 10, height: 10 }));
    if (kind === "lost") group.append(make("path", { d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, class: "cross" }));
    if (kind === "kept") group.append(make("path", { d: `M${x - 3} ${y}l2.5 3l4 -6`, class: "tick" }));
    svg.append(group);
  }

  drawEvent(svg, event, x, top, lane, lanes) {
    const members = event.member === null ? [...Array(lanes).keys()] : [event.member];
    for (const member of members) {
      const y = top + member * lane;
      const name = `${event.lied ? "flush that did not make all data durable" : event.kind} of ${this.data.members[member]}`;
      svg.append(make("g", { class: `flush${event.lied ? " lied" : ""}` }, make("title", {}, name),
        make("path", { d: `M${x} ${y + 3}v${lane - 6}m-4 -5l4 5l4 -5` })));
    }
  }

  named(request) {
    const sector = `sector ${grouped(request.lba)} + ${request.sectors}`;
    return [`${WORDS[request.kind]} ${grouped(request.number)}${request.forced ? " (FUA)" : ""}`,
      this.data.members[request.member], this.placeOf(request), this.contentOf(request), sector].filter(Boolean).join(", ");
  }

  placeOf(request) {
    if (request.stripe === null) return WORDS[request.area];
    const chunk = request.chunk === null ? WORDS[request.part] : `chunk ${grouped(request.chunk)}`;
    return this.data.parities || request.chunk === null ? `stripe ${grouped(request.stripe)}, ${chunk}` : chunk;
  }

  contentOf(request) {
    const held = request.holds.map((one) => {
      const file = one.file === null ? "?" : this.data.files[one.file].path;
      return `${file} block ${grouped(Math.floor(one.offset / BLOCK))}, generation ${grouped(one.generation)}`;
    });
    const more = request.held > held.length ? ` and ${grouped(request.held - held.length)} more` : "";
    return [request.owner, held.join("; ") + more].filter(Boolean).join(": ");
  }

  /* ------------------------------------------------------------ the four answers */

  drawTiles() {
    const { open, kept, rows, compared, state, acknowledged, assembly, missing } = this.now;
    const lost = open.length - kept.length;
    this.tile("tile-writes", lost ? "×" : "✓", `${grouped(kept.length)} of ${plural(open.length, "cached write")} kept`,
      open.length ? `${grouped(lost)} lost; all earlier writes are durable` : "no write is volatile at this cut");
    // The copies of a page may lie in two rows.
    const offsets = [...new Set(rows.flatMap((one) => one.differing))].sort((a, b) => a - b);
    const bad = offsets.length;
    at("stripes").dataset.inconsistent = compared ? offsets.join(",") : "not compared";
    const why = this.data.no_array ?? (assembly === null
      ? "this combination of superblocks was not computed" : assembly.unchecked);
    if (compared) {
      this.tile("tile-rows", bad ? "≠" : "=", bad ? `${plural(bad, "row")} inconsistent` : "stripes consistent",
        (bad ? "parity or copies do not fit the data" : `${plural(rows.length, "row")} compared`) + (why ? `; ${why}` : ""));
    } else {
      const harmed = rows.filter((one) => one.rebuilt === "neither").length;
      this.tile("tile-rows", harmed ? "≠" : "?", harmed ? `${plural(harmed, "missing chunk")} garbled`
        : missing.length === 1 ? "no garbled chunk seen" : "stripes not compared", (harmed
        ? "parity gives neither old nor new content; " : missing.length === 1 ? "in rows with a volatile write; " : "") +
        (why ?? ""));
    }
    if (state === null) this.tile("tile-found", "?", "not checked", "no machine read this choice");
    else {
      const [sign, words] = this.verdict(state);
      this.tile("tile-found", sign, words, state.shows || this.endOf(state));
    }
    const gone = state === null || state.files === null ? null : state.missing;
    this.tile("tile-acknowledged", gone ? "×" : gone === 0 ? "✓" : "?", `${plural(acknowledged.length, "operation")} acknowledged`,
      gone === null ? `whether they are there: not ${state ? "stored" : "checked"}` : gone ? `${grouped(gone)} of them missing` : "all are there");
    at("summary").textContent = ["writes", "rows", "found", "acknowledged"].map((name) => {
      const tile = at(`tile-${name}`);
      return `${tile.querySelector("b").textContent}: ${tile.querySelector("span").textContent}`;
    }).join(". ") + ".";
  }

  tile(id, sign, words, more) {
    const tile = at(id);
    tile.dataset.sign = sign;
    tile.querySelector("i").textContent = sign;
    tile.querySelector("b").textContent = words;
    tile.querySelector("span").textContent = more;
  }

  verdict(state) {
    if (state.outcome === "FAIL") return ["✗", "a promise is broken"];
    if (state.outcome === "PASS") return state.missing ? ["!", "loss, permitted by async"] : ["✓", "every promise held"];
    return ["?", state.outcome.toLowerCase()];
  }

  endOf(state) {
    return { read: "assembled, mounted and read", "not-assembled": "md could not assemble the array",
      "not-mounted": "the file system could not be mounted", wedged: "the machine hung or its kernel failed" }[state.end]
      ?? state.end;
  }

  /* ------------------------------------------------------------ details */

  drawWrites() {
    const focus = document.activeElement?.dataset?.number;
    const list = at("writes");
    const { open } = this.now;
    list.replaceChildren();
    const shown = new Set(open.slice(-WRITES_SHOWN).map((one) => one.number));
    this.data.members.forEach((name, member) => {
      const mine = open.filter((one) => one.member === member);
      if (!mine.length) return;
      const kept = mine.filter((one) => this.choice.keeps(one.number)).length;
      const all = make("input", { type: "checkbox", "data-number": `member-${member}` });
      all.checked = kept === mine.length;
      all.indeterminate = kept > 0 && kept < mine.length;
      all.addEventListener("change", () => { mine.forEach((one) => this.choice.set(one.number, all.checked)); this.draw(); });
      const part = make("fieldset", {}, make("legend", {}, make("label", {}, all,
        ` ${name}: ${grouped(kept)} of ${grouped(mine.length)} kept`)));
      const visible = mine.filter((one) => shown.has(one.number));
      if (visible.length < mine.length) {
        part.append(make("p", { class: "soft" }, `${plural(mine.length - visible.length, "older write")} not listed; ` +
          "the box above switches them, too."));
      }
      for (const one of visible) {
        const box = make("input", { type: "checkbox", "data-number": one.number });
        box.checked = this.choice.keeps(one.number);
        box.addEventListener("change", () => { this.choice.set(one.number, box.checked); this.draw(); });
        const torn = this.choice.torn.has(one.number) && box.checked;
        part.append(make("label", { class: box.checked ? "kept" : "lost" }, box,
          make("b", {}, box.checked ? (torn ? " torn " : " kept ") : " lost "),
          make("span", { class: "mono" }, grouped(one.number)), ` ${this.placeOf(one)}`,
          make("small", {}, this.contentOf(one))));
      }
      list.append(part);
    });
    if (!open.length) list.append(make("p", { class: "soft" }, "Each write before this cut is durable. Move the cut: " +
      "a write is volatile until a flush of its disk ends."));
    if (focus) list.querySelector(`[data-number="${focus}"]`)?.focus({ preventScroll: true });
  }

  drawRows() {
    const { rows, compared } = this.now;
    const body = at("rows");
    const relevant = rows.filter((one) => one.touched || one.differing.length || one.rebuilt === "neither");
    relevant.sort((a, b) => Number(b.differing.length > 0 || b.rebuilt === "neither") -
      Number(a.differing.length > 0 || a.rebuilt === "neither") || a.place - b.place);
    const shown = this.allRows ? relevant : relevant.slice(0, ROWS_SHOWN);
    at("all-rows").hidden = relevant.length <= ROWS_SHOWN;
    at("all-rows").textContent = this.allRows ? "Show fewer rows" : `Show all ${grouped(relevant.length)} rows`;
    at("rows-text").textContent = this.data.no_array !== null ? `No stripes are shown: ${this.data.no_array}.`
      : `${plural(relevant.length, "row")} with a volatile write, or inconsistent. A row is the block of 4 KiB at one ` +
        "offset of each disk.";
    body.replaceChildren(...shown.map((one) => this.rowElement(one, compared)));
  }

  rowElement(one, compared) {
    const { row, differing } = one;
    const stripe = this.data.stripes[row.stripe];
    const bad = differing.length > 0 || one.rebuilt === "neither";
    const words = compared ? (differing.length ? "≠ inconsistent" : "= consistent")
      : { before: "= missing chunk as before", after: "= missing chunk as after",
        neither: "≠ missing chunk: neither old nor new" }[one.rebuilt] ?? "not compared";
    const inside = (row.number * BLOCK) % this.data.chunk;
    const cells = row.blocks.map((block, slot) => {
      const part = stripe.parts[slot];
      const name = part === "data" ? `chunk ${grouped(stripe.chunks[slot])}` : WORDS[part];
      if (block === null) return make("td", { class: "gone" }, make("small", {}, name), "missing disk");
      const [sign, text] = this.cellOf(block);
      return make("td", { class: part === "data" ? sign : `${sign} sum` }, make("small", {}, name), text);
    });
    return make("tr", { class: bad ? "bad" : "", "data-offset": row.offset },
      make("th", { scope: "row" }, `${grouped(stripe.number)}`, make("small", {}, `+ ${inside / 1024} KiB`)),
      make("td", { class: bad ? "loss" : "" }, words), ...cells);
  }

  /* Which of the volatile writes of a block survived: its content is new, old or mixed. */
  cellOf(block) {
    const { unit, units } = this.data.blocks[block];
    const { cut } = this.now;
    const kept = new Set();
    const lost = new Set();
    for (let one = unit; one < unit + units; one += 1) {
      for (const { place } of this.disks.writers[one]) {
        const request = this.data.requests[place];
        if (request.opens > cut || (request.sure !== null && request.sure <= cut)) continue;
        (this.disks.present[place] ? kept : lost).add(request.number);
      }
    }
    const list = (numbers) => [...numbers].slice(-2).map(grouped).join(", ");
    if (!kept.size && !lost.size) return ["calm", "unchanged"];
    if (!lost.size) return ["new", `■ new: ${list(kept)}`];
    if (!kept.size) return ["old", `□ old: ${list(lost)} lost`];
    return ["mixed", `◪ ${list(kept)} kept, ${list(lost)} lost`];
  }

  drawFound() {
    const { state, cut } = this.now;
    const box = at("found");
    box.replaceChildren();
    at("found").dataset.state = state?.name ?? "";
    if (state === null) {
      const same = this.atCut.get(cut) ?? 0;
      box.append(make("p", {}, make("b", {}, "Not checked. "), "No machine assembled, mounted and read the disks of this " +
        `choice, so that the page does not say what the file system makes of it. ${plural(same, "other choice")} at this ` +
        "cut " + (same === 1 ? "was" : "were") + " checked."));
      return;
    }
    const [sign, words] = this.verdict(state);
    box.append(make("p", {}, make("b", {}, `${sign} ${words}. `), state.shows ? `${state.shows}. The exploration found ` +
      "this state when it shrank the failure, and stored no more about it." : state.reason));
    const facts = [["state", state.name], ["survivors chosen by", state.policy || "shrinking"],
      ["check ended", this.endOf(state) + (state.said ? `: ${state.said}` : "")],
      ["file system's checker (fsck)", state.fsck ?? "did not run"], ["through the NFS server", state.nfsd || "not stored"],
      ["inconsistent rows", state.differ === null ? "not stored" : `${grouped(state.differ)}` +
        (state.unchecked ? `; not judged: ${state.unchecked}` : state.differ ? state.unmarked
          ? `; md would not resync ${grouped(state.unmarked)} of them` : "; md would resync all of them" : "")],
      ["blamed on", state.blame]];
    box.append(make("dl", { class: "meaning" }, ...facts.filter(([, text]) => text).flatMap(([name, text]) =>
      [make("dt", {}, name), make("dd", { class: "anywhere" }, text)])));
  }

  drawFiles() {
    const { acknowledged, state, at: instant } = this.now;
    const files = this.data.files.map((file, index) => ({ file, index, count: 0, last: null }));
    acknowledged.forEach((one) => { files[one.file].count += 1; files[one.file].last = one; });
    const used = files.filter((one) => one.count).sort((a, b) => b.last.at_s - a.last.at_s);
    const results = state === null ? null : state.files;
    at("files").replaceChildren(...used.slice(0, FILES_SHOWN).map((one) => {
      const { file, last } = one;
      const result = results?.find((found) => found.file === one.index);
      const words = results === null ? (state ? "? not stored by file" : "? not checked") : !result ? "✓ all there"
        : `✗ ${grouped(result.missing)} missing${result.last_missing ? ", also the last one" : "; the last one is there"}`;
      return make("tr", { class: result ? "bad" : "", "data-file": one.index, "data-missing": results === null ? "?"
        : result?.missing ?? 0 },
      make("th", { scope: "row" }, file.path, make("small", {}, file.client)), make("td", { class: "n" }, grouped(one.count)),
      make("td", { class: result ? "loss" : "" }, words, result ? make("small", {}, result.example) : ""),
      make("td", {}, `${last.kind} of ${last.target}`,
        make("small", {}, `generation ${grouped(last.generation)}, ${((instant - last.at_s) * 1000).toFixed(1)} ms before the cut`)));
    }));
    at("files-text").textContent = used.length ? `${plural(acknowledged.length, "operation")} on ${plural(used.length, "file")} ` +
      "(or directories) had been acknowledged before the cut" +
      (used.length > FILES_SHOWN ? `; the table has the ${FILES_SHOWN} with the newest.` : ".")
      : "No operation had been acknowledged before this cut.";
  }

  listStates() {
    const { states } = this.data;
    at("states").replaceChildren(...states.map((one) => {
      const [sign, words] = this.verdict(one);
      const time = this.data.instants_s[one.cut - this.data.first];
      const button = make("button", { type: "button", "data-name": one.name, class: one.outcome === "FAIL" ? "bad" : "" },
        make("b", {}, `${sign} ${words}`), make("span", { class: "mono" }, one.name), ` ${seconds(time)}, ` +
        (one.smallest_of ? `smallest state of failure ${one.smallest_of}` : one.policy || "found by shrinking"));
      button.addEventListener("click", () => { this.choice.load(one); this.center = null; this.draw(); });
      return make("li", {}, button);
    }));
    const smallest = states.some((one) => one.smallest_of !== null);
    at("smallest").disabled = !smallest;
    if (!smallest) at("smallest").title = "no state failed, or none was shrunk";
  }

  markState() {
    for (const button of document.querySelectorAll("#states button")) {
      const current = button.dataset.name === this.now.state?.name;
      button.setAttribute("aria-pressed", current);
      if (current && !this.held) {
        const list = at("states");
        if (button.offsetTop < list.scrollTop || button.offsetTop > list.scrollTop + list.clientHeight - 30) {
          list.scrollTop = button.offsetTop - list.clientHeight / 2;
        }
      }
    }
  }
}

unpacked(at("data").textContent).then((data) => {
  at("loading").hidden = true;
  at("page").hidden = false;
  new Page(data);
}).catch((error) => {
  at("loading").textContent = `The page cannot show its data: ${error}. A browser of 2023 or later is required.`;
  throw error;
});
