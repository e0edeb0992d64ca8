// SPDX-License-Identifier: Apache-2.0
// Memory over time by allocation site, the segments with their holes at any moment, the trace.
//
// A life is a range of memory from the entry that took it to the one that gave it back. The timeline
// walks all changes of the visible part and keeps the fullest state of each column of pixels, so its
// cost does not depend on how far out it is zoomed.

const GROUPS = COLOURS, LEFT = 74, RIGHT = 14;
let device = data.devices[0];
let lives = null;        // what the timeline shows: blocks or segments
let groups = [];         // {name, sites, peak, colour}
let groupOf = null;      // site -> group
let changes = null;      // {at, size, group, marks}
let moment = 0, found = "", pinned = null, ofSegments = Boolean(data.ofSegments);
const view = { from: 0, to: 1 };
const EVERY = 512;       // changes between saved states

// --- what is shown

// The innermost frame, its file without folders.
function siteName(site) { return device.sites[site].split("\n")[0].replace(/^\S*\//, ""); }
const matches = (text) => found === "" || text.toLowerCase().includes(found);

function choose(index) {
  device = data.devices[index];
  view.from = 0;
  view.to = Math.max(device.length, 1);
  moment = device.length;
  pinned = null;
  regroup();
  filterTrace();
}

function peaks(all) {
  const events = [];
  for (let i = 0; i < all.size.length; ++i) {
    events.push([all.start[i], all.size[i], all.site[i]]);
    if (all.freed[i]) events.push([all.end[i], -all.size[i], all.site[i]]);
  }
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const now = new Map(), most = new Map();
  for (const [, size, site] of events) {
    const held = (now.get(site) || 0) + size;
    now.set(site, held);
    if (held > (most.get(site) || 0)) most.set(site, held);
  }
  return { events, most };
}

function regroup() {
  lives = ofSegments ? device.segments : device.blocks;
  const { events, most } = peaks(lives);
  const ranked = [...most].filter(([site]) => matches(siteText(site))).sort((a, b) => b[1] - a[1]);
  groupOf = new Map();
  groups = ranked.slice(0, GROUPS - 1).map(([site, peak], i) => {
    groupOf.set(site, i);
    return { name: siteName(site), site, peak, colour: i };
  });
  const rest = most.size - groups.length;
  groups.push({ name: rest === 1 ? "1 other site" : count(rest) + " other sites", site: null, peak: 0, colour: -1, empty: rest === 0 });
  const n = events.length;
  changes = { at: new Float64Array(n), size: new Float64Array(n), group: new Uint8Array(n), marks: [] };
  const state = new Float64Array(groups.length);
  let total = 0, top = 0;
  events.forEach(([at, size, site], i) => {
    if (i % EVERY === 0) changes.marks.push(state.slice());
    changes.at[i] = at;
    changes.size[i] = size;
    const group = groupOf.has(site) ? groupOf.get(site) : groups.length - 1;
    changes.group[i] = group;
    state[group] += size;
    total += size;
    if (total > top) { top = total; changes.peakAt = at; }
    groups[groups.length - 1].peak = Math.max(groups[groups.length - 1].peak, state[groups.length - 1]);
  });
  changes.peak = top;
  legend();
  figures();
  redraw();
}

function siteText(site) { return device.sites[site]; }
const colourOf = (site) => {
  const group = groupOf.get(site);
  return group === undefined ? style.other : style.colours[groups[group].colour];
};

// Bytes by group after all changes up to a position.
function stateAt(position) {
  const last = above(changes.at, position);
  const state = changes.marks.length ? changes.marks[Math.min(Math.floor(last / EVERY), changes.marks.length - 1)].slice()
                                     : new Float64Array(groups.length);
  const start = Math.min(Math.floor(last / EVERY), Math.max(changes.marks.length - 1, 0)) * EVERY;
  for (let i = start; i < last; ++i) state[changes.group[i]] += changes.size[i];
  return { state, next: last };
}

// --- the timeline

function drawTimeline(context, width, height) {
  const wide = width - LEFT - RIGHT, low = height - 24, top = 8;
  const columns = Math.max(1, Math.floor(wide)), groupsN = groups.length;
  const heights = new Float64Array(columns * groupsN);
  const { state, next } = stateAt(view.from);
  const span = view.to - view.from;
  let i = next, most = 1;
  for (let column = 0; column < columns; ++column) {
    const until = view.from + (column + 1) / columns * span;
    let total = 0;
    for (const amount of state) total += amount;
    let best = total, kept = state.slice();
    while (i < changes.at.length && changes.at[i] < until) {
      state[changes.group[i]] += changes.size[i];
      total += changes.size[i];
      ++i;
      // Only a state that nothing changes at the same position can be seen.
      if (total > best && (i === changes.at.length || changes.at[i] > changes.at[i - 1] || changes.size[i] > 0)) {
        best = total;
        kept = state.slice();
      }
    }
    heights.set(kept, column * groupsN);
    most = Math.max(most, best);
  }
  const scale = (low - top) / (most * 1.06);
  const step = niceStep(most * 1.06, 5, 1024);
  for (let amount = 0; amount <= most * 1.06; amount += step) {
    const y = Math.round(low - amount * scale) + 0.5;
    context.strokeStyle = style.grid;
    context.beginPath(); context.moveTo(LEFT, y); context.lineTo(width - RIGHT, y); context.stroke();
    label(context, bytes(amount), LEFT - 8, y, style.soft, "right", "middle");
  }
  const base = new Float64Array(columns);
  const order = [groupsN - 1, ...Array.from({ length: groupsN - 1 }, (_, k) => groupsN - 2 - k)];
  for (const group of order) {
    context.fillStyle = groups[group].colour < 0 ? style.other : style.colours[groups[group].colour];
    context.beginPath();
    context.moveTo(LEFT, low - base[0] * scale);
    for (let c = 0; c < columns; ++c) {
      const y = low - base[c] * scale;
      context.lineTo(LEFT + c, y);
      context.lineTo(LEFT + c + 1, y);
    }
    for (let c = columns - 1; c >= 0; --c) {
      base[c] += heights[c * groupsN + group];
      const y = low - base[c] * scale;
      context.lineTo(LEFT + c + 1, y);
      context.lineTo(LEFT + c, y);
    }
    context.fill();
  }
  const ticks = niceStep(span, Math.max(3, wide / 130), 10);
  for (let at = Math.ceil(view.from / ticks) * ticks; at <= view.to; at += ticks) {
    const x = LEFT + (at - view.from) / span * wide;
    label(context, count(Math.round(at * 1000) / 1000), x, height - 8, style.soft, x > LEFT + wide - 24 ? "right" : "center");
  }
  drawOoms(context, wide, low, top, span);
  const x = LEFT + (moment - view.from) / span * wide;
  if (x >= LEFT - 1 && x <= width - RIGHT + 1) {
    context.strokeStyle = style.ink;
    context.lineWidth = 1.5;
    context.beginPath(); context.moveTo(x, top - 4); context.lineTo(x, low); context.stroke();
    context.lineWidth = 1;
    context.fillStyle = style.ink;
    context.beginPath(); context.arc(x, top - 3, 4, 0, 7); context.fill();
  }
}

function drawOoms(context, wide, low, top, span) {
  context.strokeStyle = style.warm;
  for (const at of device.ooms) {
    const x = LEFT + (at - view.from) / span * wide;
    if (x < LEFT || x > LEFT + wide) continue;
    context.setLineDash([4, 3]);
    context.beginPath(); context.moveTo(x, top); context.lineTo(x, low); context.stroke();
    context.setLineDash([]);
    label(context, "out of memory", x + 4, top + 10, style.warm);
  }
}

function momentText(position) {
  const { state } = stateAt(position);
  const total = state.reduce((a, b) => a + b, 0);
  const at = clamp(Math.floor(position), 0, device.length - 1);
  const time = device.trace.time.length ? micros(device.trace.time[at] - device.trace.time[0]) : "";
  const rows = groups.map((group, i) => [state[i], group.name]).filter(([n]) => n > 0)
    .sort((a, b) => b[0] - a[0]).slice(0, 7).map(([n, name]) => bytes(n) + "  " + name);
  return ["entry " + count(at) + (time && ", " + time) + ": " + bytes(total), ...rows].join("\n");
}

const timeline = picture("timeline", 330, drawTimeline);
const mover = zoomable(timeline, view, () => 0, () => Math.max(device.length, 1), { left: LEFT, right: RIGHT },
  () => Math.min(8, Math.max(device.length, 1)), (event, at) => pick(Math.floor(at)));
timeline.addEventListener("pointermove", (event) => {
  if (mover.dragging()) { showTip(event, ""); return; }
  const wide = timeline.clientWidth - LEFT - RIGHT;
  const at = view.from + (event.offsetX - LEFT) / wide * (view.to - view.from);
  showTip(event, at < 0 || at > device.length ? "" : momentText(at));
});
timeline.addEventListener("pointerleave", (event) => showTip(event, ""));

function legend() {
  list.replaceChildren(...groups.filter((g) => !g.empty).map((group) => {
    const swatch = make("i");
    swatch.style.background = group.colour < 0 ? "var(--other)" : "var(--c" + group.colour + ")";
    const item = make("li", { title: group.site === null ? group.name : siteText(group.site) }, swatch,
      make("span", { className: "name", textContent: group.name }),
      make("span", { className: "amount", textContent: bytes(group.peak) }));
    item.addEventListener("mouseenter", () => { if (group.site !== null && !pinned) detail.textContent = "peak " + bytes(group.peak) + "\n" + siteText(group.site); });
    return item;
  }));
}

// --- segments at the moment

const ROW = 26, NAME = 240;
let rows = [], sameScale = false;
function alive(all, i) { return all.start[i] <= moment && (moment < all.end[i] || !all.freed[i]); }

function segmentRows() {
  const segments = device.segments, blocks = device.blocks;
  const result = [];
  for (let i = 0; i < segments.size.length; ++i) {
    if (alive(segments, i)) result.push({ at: segments.addr[i], size: segments.size[i], index: i, blocks: [], used: 0 });
  }
  result.sort((a, b) => a.at - b.at);
  const starts = result.map((row) => row.at);
  for (let i = 0; i < blocks.size.length; ++i) {
    if (!alive(blocks, i)) continue;
    const row = result[above(starts, blocks.addr[i]) - 1];
    if (!row || blocks.addr[i] >= row.at + row.size) continue;
    row.blocks.push(i);
    row.used += blocks.size[i];
  }
  return result;
}

function largestHole(row) {
  let free = row.at, hole = 0;
  const inside = row.blocks.map((i) => [device.blocks.addr[i], device.blocks.size[i]]).sort((a, b) => a[0] - b[0]);
  for (const [at, size] of inside) { hole = Math.max(hole, at - free); free = Math.max(free, at + size); }
  return Math.max(hole, row.at + row.size - free);
}

function drawSegments(context, width, height) {
  const scroll = map.scrollTop, first = Math.floor(scroll / ROW);
  const wide = width - NAME - 14, largest = Math.max(1, ...rows.map((row) => row.size));
  for (let r = first; r < rows.length && r * ROW - scroll < height; ++r) {
    const row = rows[r], y = r * ROW - scroll + 3, tall = ROW - 6;
    const full = sameScale ? Math.max(wide * row.size / largest, 2) : wide;
    label(context, hex(row.at), 10, y + tall / 2, style.soft, "left", "middle");
    label(context, bytes(row.size), NAME - 58, y + tall / 2, style.ink, "right", "middle");
    label(context, (100 * row.used / row.size).toFixed(0) + " %", NAME - 12, y + tall / 2, style.soft, "right", "middle");
    context.fillStyle = style.hole;
    context.fillRect(NAME, y, full, tall);
    for (const i of row.blocks) {
      const x = NAME + (device.blocks.addr[i] - row.at) / row.size * full;
      const w = Math.max(device.blocks.size[i] / row.size * full, 0.75);
      const dimmed = !matches(siteText(device.blocks.site[i]));
      context.globalAlpha = dimmed ? 0.25 : 1;
      context.fillStyle = colourOf(device.blocks.site[i]);
      context.fillRect(x, y, w > 3 ? w - 1 : w, tall);
      context.globalAlpha = 1;
      if (pinned === i) { context.strokeStyle = style.ink; context.lineWidth = 2; context.strokeRect(x, y, w, tall); context.lineWidth = 1; }
    }
    context.strokeStyle = style.line;
    context.strokeRect(NAME + 0.5, y + 0.5, full - 1, tall - 1);
  }
  if (!rows.length) label(context, "No segments at this moment.", 12, 20, style.soft);
}

function segmentAt(event) {
  const box = segmentsCanvas.getBoundingClientRect();
  const row = rows[Math.floor((event.clientY - box.top + map.scrollTop) / ROW)];
  if (!row) return null;
  const wide = box.width - NAME - 14, largest = Math.max(1, ...rows.map((r) => r.size));
  const full = sameScale ? Math.max(wide * row.size / largest, 2) : wide;
  const address = row.at + (event.clientX - box.left - NAME) / full * row.size;
  const slack = row.size / full;
  const hit = row.blocks.find((i) => device.blocks.addr[i] <= address && address < device.blocks.addr[i] + Math.max(device.blocks.size[i], slack));
  return { row, block: hit, inside: address >= row.at && address < row.at + row.size };
}
function blockText(i) {
  const b = device.blocks;
  return hex(b.addr[i]) + ", " + bytes(b.size[i]) + " (" + count(b.size[i]) + " bytes), stream " + b.stream[i] +
    "\nentries " + count(b.start[i]) + " to " + (b.freed[i] ? count(b.end[i]) : "the end") + "\n" + siteText(b.site[i]);
}

const segmentsCanvas = picture("segments", 300, drawSegments);
const map = make("div", { className: "scroll", id: "map" });
const mapSpace = make("div");
segmentsCanvas.style.position = "sticky";
segmentsCanvas.style.top = "0";
map.style.height = "300px";
mapSpace.append(segmentsCanvas);
map.append(mapSpace);
map.addEventListener("scroll", redraw);
segmentsCanvas.addEventListener("pointermove", (event) => {
  const hit = segmentAt(event);
  if (!hit) { showTip(event, ""); return; }
  if (hit.block !== undefined) { showTip(event, blockText(hit.block)); return; }
  showTip(event, hit.inside ? "free; the largest hole of this segment is " + bytes(largestHole(hit.row)) : "");
});
segmentsCanvas.addEventListener("pointerleave", (event) => showTip(event, ""));
segmentsCanvas.addEventListener("click", (event) => {
  const hit = segmentAt(event);
  pinned = hit && hit.block !== undefined ? hit.block : null;
  if (pinned !== null) detail.textContent = blockText(pinned);
  redraw();
});

// --- the trace

let shown = [];
const trace = longList("trace", 300, "70px 110px 130px 100px 150px 90px minmax(0,1fr)",
  [["entry", true], ["time", true], ["action", false], ["size", true], ["address", true], ["stream", true], ["site", false]],
  (place) => {
    const i = shown[place], t = device.trace;
    return [count(i), micros(t.time[i] - t.time[0]), data.actions[t.action[i]], bytes(t.size[i]), hex(t.addr[i]), String(t.stream[i]), siteName(t.site[i])];
  },
  (place) => pick(shown[place]));

function filterTrace() {
  const t = device.trace;
  shown = [];
  for (let i = 0; i < t.action.length; ++i) {
    if (found === "" || matches(data.actions[t.action[i]]) || matches(hex(t.addr[i])) || matches(siteText(t.site[i]))) shown.push(i);
  }
  trace.setLength(shown.length);
  document.getElementById("matching").textContent = count(shown.length) + (found ? " matching entries" : " entries");
}

// --- the moment

function pick(position) {
  moment = clamp(position, 0, device.length);
  const place = above(shown, moment) - 1;
  trace.choose(shown[place] === moment ? place : -1, true);
  const t = device.trace;
  if (moment < t.action.length) {
    detail.textContent = data.actions[t.action[moment]] + " " + bytes(t.size[moment]) + " at " + hex(t.addr[moment]) + "\n" + siteText(t.site[moment]);
  }
  pinned = null;
  figures();
  redraw();
}

function figures() {
  rows = segmentRows();
  mapSpace.style.height = Math.max(rows.length * ROW, 300) + "px";
  let reserved = 0, used = 0, hole = 0;
  for (const row of rows) { reserved += row.size; used += row.used; hole = Math.max(hole, largestHole(row)); }
  const set = (id, text) => { document.getElementById(id).textContent = text; };
  set("peak", bytes(changes.peak));
  set("now", bytes(stateAt(moment).state.reduce((a, b) => a + b, 0)));
  set("reserved", bytes(reserved));
  set("holes", bytes(Math.max(reserved - used, 0)));
  set("hole", bytes(hole));
  set("entries", count(device.trace.action.length));
  document.getElementById("when").textContent = moment >= device.length ? "at the end" : "after entry " + count(moment);
}

// --- the page

const search = make("input", { type: "search", id: "search", placeholder: "Search sites, actions, addresses" });
search.addEventListener("input", () => { found = search.value.trim().toLowerCase(); regroup(); filterTrace(); });
const which = make("select", { id: "device", ariaLabel: "device" });
data.devices.forEach((d, i) => which.append(make("option", { value: i, textContent: d.name })));
which.addEventListener("change", () => choose(Number(which.value)));
const list = make("ul", { className: "legend", id: "legend" });
const detail = make("pre", { className: "detail", id: "detail", textContent: "Point at the timeline or at a block; click to keep a moment or a block." });
const what = make("button", { id: "what", textContent: "segments", ariaPressed: String(ofSegments), title: "Show segments instead of blocks" });
what.addEventListener("click", () => { ofSegments = !ofSegments; what.ariaPressed = String(ofSegments); regroup(); });
const scale = make("button", { id: "scale", textContent: "same scale", ariaPressed: "false" });
scale.addEventListener("click", () => { sameScale = !sameScale; scale.ariaPressed = String(sameScale); redraw(); });
const toPeak = make("button", { id: "to-peak", textContent: "go to peak" });
toPeak.addEventListener("click", () => pick(changes.peakAt || 0));

document.body.append(make("main", {},
  pageHeader(search, ...(data.devices.length > 1 ? [which] : [])),
  make("section", { className: "figures" }, figure("peak", "peak"), figure("now", "held at the moment"), figure("reserved", "reserved in segments"),
    figure("holes", "in holes"), figure("hole", "largest hole"), figure("entries", "entries in the trace")),
  make("div", { className: "columns" },
    make("section", { className: "card" },
      make("div", { className: "bar" }, make("h2", { textContent: "Memory held, by allocation site" }), what, toPeak,
        make("span", { className: "hint", textContent: "wheel zooms, drag moves, click picks a moment, double click shows all" })),
      timeline),
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Sites by their peaks" })), list)),
  make("div", { className: "columns" },
    make("section", { className: "card" },
      make("div", { className: "bar" }, make("h2", { textContent: "Segments and their holes" }), make("span", { className: "hint", id: "when", style: "margin-left:0" }), scale), map),
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Details" })), detail)),
  make("section", { className: "card" },
    make("div", { className: "bar" }, make("h2", { textContent: "Trace" }), make("span", { className: "hint", id: "matching", style: "margin-left:0" })), trace.box)));
choose(0);
if (data.start === "segments") map.scrollIntoView();
