// SPDX-License-Identifier: Apache-2.0
// A captured graph: a lane for each stream, a box for each node, lines for what waits for what. With
// durations a box is as long as its node takes; without, each step is equally long.

const LEFT = 118, RIGHT = 16, AXIS = 26, LANE = 52, BOX = 32;
const nodes = data.nodes;   // {name, kind, lane, from, to, critical, after, detail, annotation, id}
const lanes = data.lanes;
const end = Math.max(data.end, 0.001);
const view = { from: 0, to: end };
let found = "", chosen = -1, onlyCritical = false;
const KINDS = ["kernel", "memcpy", "memset", "host", "event_record", "wait_event", "empty"];
const annotations = [...new Set(nodes.map((n) => n.annotation).filter(Boolean))];
const colourOf = (node) => {
  if (annotations.length) return node.annotation ? style.colours[annotations.indexOf(node.annotation) % COLOURS] : style.mute;
  const kind = KINDS.indexOf(node.kind);
  return style.colours[kind < 0 ? COLOURS - 1 : kind];
};
const haystack = nodes.map((n) => (n.name + " " + n.kind + " " + (n.annotation || "") + " " + n.id).toLowerCase());
const isMatch = (i) => (found === "" || haystack[i].includes(found)) && (!onlyCritical || nodes[i].critical);
const x = (at, wide) => LEFT + (at - view.from) / (view.to - view.from) * wide;
const y = (node) => AXIS + node.lane * LANE + (LANE - BOX) / 2;
const dependents = nodes.map(() => []);
nodes.forEach((node, i) => node.after.forEach((j) => dependents[j].push(i)));
// What the chosen node waits for, and what waits for it, all the way.
function related(start) {
  const result = new Set([start]);
  for (const next of [(i) => nodes[i].after, (i) => dependents[i]]) {
    const open = [start];
    while (open.length) for (const j of next(open.pop())) if (!result.has(j)) { result.add(j); open.push(j); }
  }
  return result;
}
let kin = null;

function drawGraph(context, width, height) {
  const wide = width - LEFT - RIGHT;
  lanes.forEach((name, lane) => {
    const top = AXIS + lane * LANE;
    if (lane % 2 === 0) { context.fillStyle = style.hole; context.globalAlpha = 0.5; context.fillRect(0, top, width, LANE); context.globalAlpha = 1; }
    label(context, fitted(context, name, LEFT - 20), 10, top + LANE / 2, style.soft, "left", "middle");
  });
  const step = data.timed ? niceStep(view.to - view.from, Math.max(3, wide / 140), 10) : Math.max(1, niceStep(view.to - view.from, Math.max(3, wide / 110), 10));
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    label(context, data.timed ? micros(at) : "step " + count(at), x(at, wide), AXIS - 10, style.soft, "center");
  }
  context.save();
  context.beginPath(); context.rect(LEFT, AXIS, wide + RIGHT, 1e6); context.clip();
  for (const critical of [false, true]) {
    nodes.forEach((node, i) => { for (const j of node.after) drawEdge(context, nodes[j], node, i, j, wide, critical); });
  }
  nodes.forEach((node, i) => drawNode(context, node, i, wide));
  context.restore();
}

function drawEdge(context, from, to, i, j, wide, critical) {
  if ((from.critical && to.critical && to.criticalAfter === j) !== critical) return;
  const x0 = x(from.to, wide), x1 = x(to.from, wide);
  if (x1 < LEFT || x0 > LEFT + wide) return;
  const y0 = y(from) + BOX / 2, y1 = y(to) + BOX / 2;
  const dim = !isMatch(i) && !isMatch(j) || (kin && !(kin.has(i) && kin.has(j)));
  context.globalAlpha = dim ? 0.12 : 1;
  context.strokeStyle = critical ? style.warm : style.soft;
  context.lineWidth = critical ? 2.5 : 1;
  context.beginPath();
  context.moveTo(x0, y0);
  const bend = Math.max(Math.min((x1 - x0) / 2, 60), y0 === y1 ? 0 : 12);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

function drawNode(context, node, i, wide) {
  const left = x(node.from, wide), right = x(node.to, wide);
  if (right < LEFT || left > LEFT + wide + RIGHT) return;
  const w = Math.max(right - left, 2), top = y(node);
  context.globalAlpha = isMatch(i) && (!kin || kin.has(i)) ? 1 : 0.2;
  context.fillStyle = colourOf(node);
  context.beginPath();
  if (w > 10) context.roundRect(left, top, w, BOX, 5); else context.rect(left, top, w, BOX);
  context.fill();
  if (node.critical) { context.strokeStyle = style.warm; context.lineWidth = 2; context.stroke(); }
  if (chosen === i) { context.strokeStyle = style.ink; context.lineWidth = 2.5; context.stroke(); }
  context.lineWidth = 1;
  const from = Math.max(left, LEFT), room = Math.min(right, LEFT + wide) - from - 10;
  const second = node.annotation || node.short;
  label(context, fitted(context, node.name, room), from + 5, top + (second ? 11 : BOX / 2), style.on, "left", "middle");
  if (second) { context.globalAlpha *= 0.85; label(context, fitted(context, second, room), from + 5, top + 23, style.on, "left", "middle"); }
  context.globalAlpha = 1;
}

const canvas = picture("graph", AXIS + lanes.length * LANE + 8, drawGraph);
function hitAt(event) {
  const box = canvas.getBoundingClientRect(), wide = box.width - LEFT - RIGHT;
  const px = event.clientX - box.left, py = event.clientY - box.top;
  let best = -1;
  nodes.forEach((node, i) => {
    const left = x(node.from, wide), right = Math.max(x(node.to, wide), left + 3);
    if (px >= left && px <= right && py >= y(node) && py <= y(node) + BOX) best = i;
  });
  return best;
}
const mover = zoomable(canvas, view, () => 0, () => end, { left: LEFT, right: RIGHT }, () => Math.min(data.timed ? 0.05 : 2, end), (event) => select(hitAt(event)));
canvas.addEventListener("pointermove", (event) => {
  const hit = mover.dragging() ? -1 : hitAt(event);
  showTip(event, hit < 0 ? "" : nodes[hit].name + "\n" + [nodes[hit].kind, nodes[hit].annotation, nodes[hit].short].filter(Boolean).join(", "));
});
canvas.addEventListener("pointerleave", (event) => showTip(event, ""));
function select(i) {
  chosen = i;
  kin = i < 0 ? null : related(i);
  detail.textContent = i < 0 ? "Click a node: what it waits for and what waits for it stays bright." :
    nodes[i].detail + "\nwaits for: " + (nodes[i].after.map((j) => nodes[j].name + " (" + nodes[j].id + ")").join(", ") || "nothing") +
    "\nis waited for by: " + (dependents[i].map((j) => nodes[j].name + " (" + nodes[j].id + ")").join(", ") || "nothing");
  list.choose(i, true);
  redraw();
}

const search = make("input", { type: "search", id: "search", placeholder: "Search nodes and annotations" });
search.addEventListener("input", () => { found = search.value.trim().toLowerCase(); redraw(); });
const path = make("button", { id: "critical", textContent: "critical path", ariaPressed: "false" });
path.addEventListener("click", () => { onlyCritical = !onlyCritical; path.ariaPressed = String(onlyCritical); redraw(); });
const detail = make("pre", { className: "detail", id: "detail" });
const list = longList("nodes", 300, "60px minmax(0,1fr) 110px minmax(0,1fr) 110px", [["node", true], ["name", false], ["kind", false], ["annotation", false], [data.timed ? "time" : "step", true]],
  (i) => { const n = nodes[i]; return [n.id, (n.critical ? "● " : "") + n.name, n.kind, n.annotation || "", data.timed ? micros(n.to - n.from) : String(n.from)]; }, (i) => select(i));
document.body.append(make("main", {},
  pageHeader(search),
  make("section", { className: "figures" }, ...data.figures.map(([text, value], i) => { const f = figure("figure" + i, text); f.firstChild.textContent = value; return f; })),
  make("section", { className: "card" },
    make("div", { className: "bar" }, make("h2", { textContent: "Nodes by lane" }), path,
      make("span", { className: "hint", textContent: (data.timed ? "lengths are durations; " : "each step is equally long; ") + "wheel zooms, drag moves, click a node, double click shows all" })), canvas),
  make("div", { className: "columns" },
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Nodes" })), list.box),
    make("section", { className: "card" }, make("div", { className: "bar" }, make("h2", { textContent: "Details" })), detail))));
list.setLength(nodes.length);
select(-1);
