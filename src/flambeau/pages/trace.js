// SPDX-License-Identifier: Apache-2.0
// A trace: a track for each thread and each stream, spans nested in it, what an event says of itself.

const LEFT = 190, RIGHT = 14, ROW = 20, GAP = 10, AXIS = 26;
const tracks = data.tracks;   // {name, group, start, dur, depth, name index, category, args}
const low = data.begin, high = Math.max(data.end, data.begin + 0.001);
const view = { from: low, to: high };
let found = "", chosen = null;   // [track, place]

let total = AXIS;
for (const track of tracks) {
  track.rows = track.depth.length ? Math.max(...new Set(track.depth)) + 1 : 1;
  track.top = total + (track.header ? 22 : 0);
  total = track.top + track.rows * ROW + GAP;
}
const colourFor = (name) => {
  let hash = 7;
  for (let i = 0; i < name.length; ++i) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return hash % COLOURS;
};
const shades = data.names.map(colourFor);
const isMatch = (name) => found === "" || data.names[name].toLowerCase().includes(found);

function place(us, wide) { return LEFT + (us - view.from) / (view.to - view.from) * wide; }

function drawTracks(context, width, height) {
  const wide = width - LEFT - RIGHT, span = view.to - view.from;
  const step = niceStep(span, Math.max(3, wide / 140), 10);
  for (let at = Math.ceil((view.from - low) / step) * step; at <= view.to - low; at += step) {
    const x = Math.round(place(at + low, wide)) + 0.5;
    context.strokeStyle = style.grid;
    context.beginPath(); context.moveTo(x, AXIS - 6); context.lineTo(x, height); context.stroke();
    label(context, micros(at), x, AXIS - 11, style.soft, x > width - 60 ? "right" : "center");
  }
  const dimNames = data.names.map((_, i) => !isMatch(i));
  tracks.forEach((track, t) => drawTrack(context, track, t, wide, width, dimNames));
  if (chosen) drawFlow(context, wide);
}

function drawTrack(context, track, t, wide, width, dimNames) {
  if (track.header) {
    label(context, track.header, 8, track.top - 8, style.ink);
    context.strokeStyle = style.line;
    context.beginPath(); context.moveTo(0, track.top - 22.5); context.lineTo(width, track.top - 22.5); context.stroke();
  }
  label(context, fitted(context, track.name, LEFT - 20), 16, track.top + ROW / 2 - 1, style.soft, "left", "middle");
  context.save();
  context.beginPath(); context.rect(LEFT, 0, wide, 1e6); context.clip();
  const lastPixel = new Float64Array(track.rows).fill(-1);
  for (let i = firstVisible(track); i < track.start.length && track.start[i] <= view.to; ++i) {
    const end = track.start[i] + track.dur[i];
    if (end < view.from) continue;
    const x = place(track.start[i], wide), right = place(end, wide), row = track.depth[i];
    if (right < lastPixel[row] + 0.4 && right - x < 0.5) continue;   // it would only paint a pixel again
    const w = Math.max(right - x, 1), y = track.top + row * ROW;
    lastPixel[row] = x + w;
    context.globalAlpha = dimNames[track.label[i]] ? 0.18 : 1;
    context.fillStyle = style.colours[shades[track.label[i]]];
    context.fillRect(x, y, w > 3 ? w - 0.75 : w, ROW - 3);
    if (w > 26) {
      const from = Math.max(x, LEFT);
      label(context, fitted(context, data.names[track.label[i]], Math.min(right, LEFT + wide) - from - 8), from + 4, y + (ROW - 3) / 2, style.on, "left", "middle");
    }
    context.globalAlpha = 1;
    if (chosen && chosen[0] === t && chosen[1] === i) {
      context.strokeStyle = style.ink; context.lineWidth = 2;
      context.strokeRect(x, y, w, ROW - 3);
      context.lineWidth = 1;
    }
  }
  context.restore();
}

// Spans are in order of their starts; one that began long ago may still be visible.
function firstVisible(track) {
  const reach = view.from - track.longest;
  return Math.max(above(track.start, reach) - 1, 0);
}

// From the call that submitted the chosen work, or to the work that the chosen call submitted.
function drawFlow(context, wide) {
  const own = tracks[chosen[0]], key = own.correlation[chosen[1]];
  if (!key) return;
  const ends = (byCorrelation.get(key) || []).map(([t, i]) => [tracks[t], i]);
  const from = ends.find(([track]) => !track.device), targets = ends.filter(([track]) => track.device);
  if (!from) return;
  context.save();
  context.beginPath(); context.rect(LEFT, 0, wide, 1e6); context.clip();
  context.strokeStyle = style.warm;
  context.lineWidth = 1.5;
  const x0 = place(from[0].start[from[1]] + from[0].dur[from[1]] / 2, wide), y0 = from[0].top + from[0].depth[from[1]] * ROW + ROW - 3;
  for (const [track, i] of targets.slice(0, 200)) {
    const x1 = place(track.start[i], wide), y1 = track.top + track.depth[i] * ROW + 4;
    context.beginPath(); context.moveTo(x0, y0);
    context.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
    context.stroke();
  }
  context.restore();
}
const byCorrelation = new Map();
tracks.forEach((track, t) => track.correlation.forEach((key, i) => {
  if (!key || (!track.device && !track.call[i])) return;
  if (!byCorrelation.has(key)) byCorrelation.set(key, []);
  byCorrelation.get(key).push([t, i]);
}));

const canvas = picture("tracks", total + 6, drawTracks);
const mover = zoomable(canvas, view, () => low, () => high, { left: LEFT, right: RIGHT },
  () => Math.min(0.05, high - low), (event) => select(hitAt(event)));

function hitAt(event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top, wide = box.width - LEFT - RIGHT;
  if (x < LEFT) return null;
  const t = tracks.findIndex((track) => y >= track.top && y < track.top + track.rows * ROW);
  if (t < 0) return null;
  const track = tracks[t], row = Math.floor((y - track.top) / ROW);
  const slack = (view.to - view.from) / wide;
  const at = view.from + (x - LEFT) / wide * (view.to - view.from);
  let best = null;
  for (let i = firstVisible(track); i < track.start.length && track.start[i] <= at + slack; ++i) {
    if (track.depth[i] === row && at <= track.start[i] + Math.max(track.dur[i], slack)) best = [t, i];
  }
  return best;
}
function describe([t, i], long) {
  const track = tracks[t];
  const lines = [data.names[track.label[i]], micros(track.dur[i]) + ", begins at " + micros(track.start[i] - low) + " on " + track.name];
  const args = data.args[track.args[i]];
  if (long && args) for (const [name, value] of Object.entries(args)) lines.push(name + ": " + (typeof value === "string" ? value.split(";").join("\n    ") : JSON.stringify(value)));
  return lines.join("\n");
}
function select(hit) {
  chosen = hit;
  detail.textContent = hit ? describe(hit, true) : "Click a span to see what is known of it.";
  redraw();
}
canvas.addEventListener("pointermove", (event) => {
  const hit = mover.dragging() ? null : hitAt(event);
  showTip(event, hit ? describe(hit, false) : "");
});
canvas.addEventListener("pointerleave", (event) => showTip(event, ""));

const search = make("input", { type: "search", id: "search", placeholder: "Search names" });
search.addEventListener("input", () => { found = search.value.trim().toLowerCase(); redraw(); });
search.addEventListener("keydown", (event) => { if (event.key === "Enter") next(); });
// The next span whose name matches, after the chosen one, in order of time; the view goes there.
function next() {
  let best = null;
  const after = chosen ? tracks[chosen[0]].start[chosen[1]] : -Infinity;
  tracks.forEach((track, t) => {
    for (let i = above(track.start, after); i < track.start.length; ++i) {
      if (!isMatch(track.label[i])) continue;
      if (!best || track.start[i] < tracks[best[0]].start[best[1]]) best = [t, i];
      break;
    }
  });
  if (!best) { chosen = null; return; }
  const start = tracks[best[0]].start[best[1]], length = Math.max(tracks[best[0]].dur[best[1]], 0.1);
  view.from = clamp(start - 4 * length, low, high);
  view.to = clamp(start + 5 * length, view.from + 0.01, high);
  select(best);
}
const detail = make("pre", { className: "detail", id: "detail", textContent: "Click a span to see what is known of it." });
const list = longList("totals", 320, "minmax(0,1fr) 150px 80px 110px 110px 110px", [["name", false], ["category", false], ["count", true], ["total", true], ["mean", true], ["longest", true]],
  (i) => { const r = data.totals[i]; return [r[0], r[1], count(r[2]), micros(r[3]), micros(r[3] / r[2]), micros(r[4])]; },
  (i) => { search.value = data.totals[i][0]; found = search.value.toLowerCase(); chosen = null; next(); list.choose(i, false); redraw(); });
document.body.append(make("main", {},
  pageHeader(search),
  make("section", { className: "figures" }, ...data.figures.map(([text, value], i) => { const f = figure("figure" + i, text); f.firstChild.textContent = value; return f; })),
  make("section", { className: "card" },
    make("div", { className: "bar" }, make("h2", { textContent: "What ran, and when" }),
      make("span", { className: "hint", textContent: "wheel zooms, drag moves, click shows details, double click shows all, Enter in the search goes to the next" })), canvas),
  make("div", { className: "columns" },
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Totals" })), list.box),
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Details" })), detail))));
list.setLength(data.totals.length);
redraw();
