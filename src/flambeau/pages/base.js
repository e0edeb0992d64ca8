// SPDX-License-Identifier: Apache-2.0
"use strict";
// What all pages share: elements, numbers for people, colours, canvases that stay sharp, tips.

const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 12;

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function bytes(n) {
  const size = Math.abs(n);
  if (size >= 2 ** 30) return (n / 2 ** 30).toFixed(2) + " GiB";
  if (size >= 2 ** 20) return (n / 2 ** 20).toFixed(2) + " MiB";
  if (size >= 2 ** 10) return (n / 2 ** 10).toFixed(1) + " KiB";
  return n + " B";
}
function micros(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return (us / 1e6).toFixed(3) + " s";
  if (size >= 1e3) return (us / 1e3).toFixed(3) + " ms";
  return us.toFixed(3) + " µs";
}
const count = (n) => n.toLocaleString("en-US");
const hex = (n) => "0x" + n.toString(16);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// First place in a sorted array whose value is above x.
function above(array, x) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] > x) high = middle; else low = middle + 1;
  }
  return low;
}

// Round steps for an axis of `span` with about `want` labels.
function niceStep(span, want, base) {
  const raw = span / want;
  if (base === 1024) {
    let step = 1;
    while (step < raw) step *= 2;
    return step;
  }
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= raw) return factor * power;
  return 10 * power;
}

// --- theme

let style = {};
const redraws = [];
function readStyle() {
  const of = getComputedStyle(document.documentElement);
  const get = (name) => of.getPropertyValue("--" + name).trim();
  style = { colours: [] };
  for (const name of ["ink", "soft", "line", "grid", "accent", "other", "hole", "card", "warm", "mute", "on"]) style[name] = get(name);
  for (let i = 0; i < COLOURS; ++i) style.colours.push(get("c" + i));
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readStyle();
  redraw();
}
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = prefersDark.matches ? "dark" : "light";
prefersDark.addEventListener("change", () => setTheme(prefersDark.matches ? "dark" : "light"));
readStyle();

let scheduled = false;
function redraw() {   // at most once a frame
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    const begin = performance.now();
    for (const draw of redraws) draw();
    document.documentElement.dataset.drawMs = (performance.now() - begin).toFixed(1);
  });
}

function pageHeader(...controls) {
  const theme = make("button", { id: "theme", title: "Light or dark", textContent: "◐" });
  theme.addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
  return make("header", {}, make("h1", { textContent: data.title }), ...controls, theme);
}

function figure(id, label) {
  const value = make("b", { id, textContent: "–" });
  return make("div", { className: "figure" }, value, make("span", { textContent: label }));
}

// --- canvases

// A canvas of a fixed height in CSS pixels that fills its width; `draw(context, width, height)`.
function picture(id, height, draw) {
  const canvas = make("canvas", { id, tabIndex: 0 });
  canvas.style.height = height + "px";
  const paint = () => {
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, high = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(high * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, high);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    draw(context, width, high);
  };
  redraws.push(paint);
  new ResizeObserver(redraw).observe(canvas);
  return canvas;
}

const tip = make("div", { className: "tip", id: "tip" });
document.body.append(tip);
function showTip(event, text) {
  if (!text) { tip.style.display = "none"; return; }
  tip.textContent = text;
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
  const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16;
  tip.style.left = Math.max(left, 4) + "px";
  tip.style.top = Math.max(top, 4) + "px";
}

// Wheel zooms around the pointer, dragging pans, a double click shows all again. `view` has `from`
// and `to` within [low, high]; `left` and `right` say where the plot is in the canvas.
function zoomable(canvas, view, low, high, margins, smallest, clicked) {
  let drag = null, moved = false;
  const inside = (event) => {
    const box = canvas.getBoundingClientRect();
    const wide = box.width - margins.left - margins.right;
    return clamp((event.clientX - box.left - margins.left) / wide, 0, 1);
  };
  const limit = () => {
    const span = clamp(view.to - view.from, smallest(), high() - low());
    view.from = clamp(view.from, low(), high() - span);
    view.to = view.from + span;
    redraw();
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = view.from + inside(event) * (view.to - view.from);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const move = (event.deltaX || event.deltaY) / 800 * (view.to - view.from);
      view.from += move;
      view.to += move;
    } else {
      const factor = Math.exp(clamp(event.deltaY, -300, 300) / 400);
      view.from = at - (at - view.from) * factor;
      view.to = at + (view.to - at) * factor;
    }
    limit();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, from: view.from, to: view.to };
    moved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const wide = canvas.clientWidth - margins.left - margins.right;
    if (Math.abs(event.clientX - drag.x) > 3) moved = true;
    if (!moved) return;
    const move = (drag.x - event.clientX) / wide * (drag.to - drag.from);
    view.from = drag.from + move;
    view.to = drag.to + move;
    limit();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !moved) clicked(event, view.from + inside(event) * (view.to - view.from));
    drag = null;
  });
  canvas.addEventListener("dblclick", () => { view.from = low(); view.to = high(); limit(); });
  canvas.addEventListener("keydown", (event) => {
    const span = view.to - view.from, middle = view.from + span / 2;
    const move = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    const scale = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (move) { view.from += move * span; view.to += move * span; }
    else if (scale) { view.from = middle - scale * span / 2; view.to = middle + scale * span / 2; }
    else if (event.key === "0") { view.from = low(); view.to = high(); }
    else return;
    event.preventDefault();
    limit();
  });
  return { dragging: () => drag !== null && moved };
}

function label(context, text, x, y, colour, align = "left", base = "alphabetic") {
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = base;
  context.fillText(text, x, y);
}

// Text that fits into a width, or a part of it, or nothing.
function fitted(context, text, width) {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  const each = context.measureText("n").width;
  const room = Math.floor(width / each) - 1;
  return room > 2 ? text.slice(0, room) + "…" : "";
}

// A list of many rows of which only the visible ones are elements.
function longList(id, height, columns, heads, fill, picked) {
  const ROW = 24;
  const box = make("div", { id, className: "scroll", tabIndex: 0 });
  box.style.height = height + "px";
  const head = make("div", { className: "row head" });
  head.style.gridTemplateColumns = columns;
  heads.forEach(([text, number]) => head.append(make("span", { textContent: text, className: number ? "num" : "" })));
  const space = make("div");
  space.style.position = "relative";
  box.append(head, space);
  let length = 0, chosen = -1;
  const paint = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
    const last = Math.min(length, first + Math.ceil(height / ROW) + 10);
    const rows = [];
    for (let place = first; place < last; ++place) {
      const row = make("div", { className: "row" + (place === chosen ? " picked" : "") });
      row.style.gridTemplateColumns = columns;
      row.style.top = place * ROW + "px";
      fill(place).forEach((text, i) => {
        row.append(make("span", { textContent: text, title: text, className: heads[i][1] ? "num" : "" }));
      });
      row.addEventListener("click", () => picked(place));
      rows.push(row);
    }
    space.replaceChildren(...rows);
  };
  box.addEventListener("scroll", paint);
  return {
    box,
    setLength(n) { length = n; space.style.height = Math.max(n * ROW, 1) + "px"; paint(); },
    choose(place, scroll) {
      chosen = place;
      if (scroll && place >= 0) {
        const top = place * ROW;
        if (top < box.scrollTop || top > box.scrollTop + height - 3 * ROW) box.scrollTop = top - height / 2;
      }
      paint();
    },
  };
}
