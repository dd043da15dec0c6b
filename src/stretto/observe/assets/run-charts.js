"use strict";
// Line charts as SVG: ticks, a cross that follows the pointer or the arrow keys, and zoom by dragging.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const SUFFIXES = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]];

// A number in as few characters as tell it: 12.3 M, 0.00012, 7.
function amount(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const minus = value < 0 ? "−" : "";
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return minus + size.toExponential(2);
  for (const [unit, suffix] of SUFFIXES) if (size >= 1e4 && size >= unit) return minus + trimmed(size / unit) + suffix;
  return minus + trimmed(size);
}

function trimmed(size) {
  return String(Number(size.toPrecision(4)));
}

function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${trimmed(1000 * seconds)} ms`;
  if (seconds < 120) return `${trimmed(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const BINARY = [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"]];
const DECIMAL = [[1e12, " TB"], [1e9, " GB"], [1e6, " MB"], [1e3, " kB"]];

// Memory in powers of two.
function bytes(value, units = BINARY) {
  if (value === null || !Number.isFinite(value)) return "–";
  for (const [unit, suffix] of units) if (value >= unit) return trimmed(value / unit) + suffix;
  return `${trimmed(value)} B`;
}

// What links carry, in powers of ten, as their rates are given.
function sentBytes(value) {
  return bytes(value, DECIMAL);
}

function binaryTicks(low, high, count) {
  const [unit] = BINARY.find(([one]) => high >= one) ?? [1];
  return ticks(low / unit, high / unit, count).map((tick) => tick * unit);
}

// Round places in [low, high] for ticks, about `count` of them.
function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((one) => one * power >= raw * 0.999) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(k * step);
  return found;
}

function logTicks(low, high) {
  const found = [];
  const many = Math.log10(high / low) > 4;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const one of many ? [1] : [1, 2, 5]) {
      const value = one * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found.length > 1 ? found : ticks(low, high, 4);
}

class Chart {
  // host: an element. name: what a reader without eyes hears.
  constructor(host, name) {
    this.host = host;
    this.name = name;
    this.curves = [];
    this.limits = [];
    this.format = amount;
    this.range = null; // [low, high] of x, when zoomed
    this.at = null; // x of the cross
    this.legend = el("ul", { class: "legend" });
    this.values = el("p", { class: "values", role: "status" });
    this.figure = svg("svg", { role: "img", tabindex: "0" });
    host.replaceChildren(this.legend, this.figure, this.values);
    this.figure.addEventListener("pointermove", (event) => this.follow(event));
    this.figure.addEventListener("pointerleave", () => this.point(null));
    this.figure.addEventListener("pointerdown", (event) => this.grab(event));
    this.figure.addEventListener("pointerup", (event) => this.drop(event));
    this.figure.addEventListener("dblclick", () => this.reset());
    this.figure.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  // curves: [{name, x, y}]; at most six have colours of their own. A null of y is left out, or with `gaps` breaks the curve.
  // step: a value holds until the next one. area: curves are filled down to 0, the first in front.
  // limits: [{name, value}], dashed lines. format: of values of y. marks: where y has ticks. step = "pre": a value held since the one before.
  // low: a chart of little height. whole: ticks are whole numbers. A curve may have `own` values, which are told in place of y.
  show(curves, { x, y, log = false, gaps = false, step = false, area = false, limits = [], format = amount, zero = area, marks = null, low = false, whole = false }) {
    if (x !== this.x || y !== this.y) this.range = null;
    [this.curves, this.x, this.y, this.log] = [curves, x, y, log];
    Object.assign(this, { gaps, step, area, limits, format, zero, marks, low, whole });
    this.draw();
  }

  reset() {
    this.range = null;
    this.draw();
  }

  draw() {
    const points = this.curves.map((curve) => this.points(curve));
    const all = points.flat();
    this.legend.hidden = this.curves.length < 2 && !this.limits.length;
    this.legend.replaceChildren(...this.curves.map((curve, k) => el("li", {},
      svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, svg("path", { d: "M0 4H20", class: `s${k % 6}` })), curve.name)),
      ...this.limits.map((limit) => el("li", {}, svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, svg("path", { d: "M0 4H20", class: "limit" })), limit.name)));
    if (!all.length) {
      this.figure.replaceChildren();
      this.figure.setAttribute("height", 0);
      this.values.textContent = "Nothing has been recorded yet.";
      this.scale = null;
      return;
    }
    const width = Math.max(220, this.host.clientWidth);
    const height = this.low ? 110 : Math.round(Math.min(380, Math.max(200, width * 0.42)));
    const box = { left: 62, right: width - 14, top: 8, bottom: height - 40 };
    const xs = all.map((point) => point[0]);
    const ys = all.map((point) => point[1]).concat(this.limits.map((limit) => limit.value), this.zero ? [0] : []);
    let [x0, x1] = this.range ?? [least(xs), most(xs)];
    let [y0, y1] = [least(ys), most(ys)];
    const log = this.log && y0 > 0;
    if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
    if (y0 === y1) [y0, y1] = log ? [y0 / 1.1, y1 * 1.1] : [y0 - (Math.abs(y0) || 1) * 0.05, y1 + (Math.abs(y1) || 1) * 0.05];
    const level = log ? Math.log : (value) => value;
    const pad = (level(y1) - level(y0)) * 0.05;
    const [low, high] = [level(y0) - (this.zero && y0 === 0 ? 0 : pad), level(y1) + pad];
    const toX = (value) => box.left + ((value - x0) / (x1 - x0)) * (box.right - box.left);
    const toY = (value) => box.bottom - ((level(value) - low) / (high - low)) * (box.bottom - box.top);
    this.scale = { box, x0, x1, toX, toY, fromX: (place) => x0 + ((place - box.left) / (box.right - box.left)) * (x1 - x0) };
    const parts = [];
    const marked = this.format === bytes ? binaryTicks : ticks;
    for (const value of this.marks ?? (log ? logTicks(y0, y1) : marked(low, high, 5))) {
      const place = toY(value);
      if (this.whole && !Number.isInteger(value)) continue;
      if (place > box.bottom + 1 || place < box.top - 1) continue;
      parts.push(svg("path", { d: `M${box.left} ${place}H${box.right}`, class: "axis" }));
      parts.push(svg("text", { x: box.left - 8, y: place + 4, "text-anchor": "end" }, this.format(value)));
    }
    for (const value of ticks(x0, x1, Math.max(2, width / 110))) {
      parts.push(svg("text", { x: toX(value), y: box.bottom + 18, "text-anchor": "middle" }, amount(value)));
    }
    parts.push(svg("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, this.x));
    const places = points.map((part, k) => [part, k]);
    for (const [part, k] of this.area ? places.reverse() : places) {
      const path = part.map(([px, py, fresh], i) => {
        const [sx, sy] = [toX(px).toFixed(1), toY(py).toFixed(1)];
        if (!i || fresh) return `M${sx} ${sy}`;
        return this.step === "pre" ? `V${sy}H${sx}` : this.step ? `H${sx}V${sy}` : `L${sx} ${sy}`;
      }).join("");
      if (this.area && part.length) parts.push(svg("path", { d: `${path}V${box.bottom}H${toX(part[0][0]).toFixed(1)}Z`, class: `area f${k % 6}` }));
      parts.push(svg("path", { d: path, class: `curve s${k % 6}${this.gaps && !this.step ? " bars" : ""}` }));
      if (part.length <= 40 && !this.gaps && !this.area) {
        for (const point of part) parts.push(svg("circle", { cx: toX(point[0]), cy: toY(point[1]), r: 2.5, class: `f${k % 6}` }));
      }
    }
    for (const { value } of this.limits) parts.push(svg("path", { d: `M${box.left} ${toY(value).toFixed(1)}H${box.right}`, class: "limit" }));
    this.cross = svg("path", { class: "cross" });
    this.band = svg("rect", { class: "range", y: box.top, height: box.bottom - box.top, width: 0 });
    this.figure.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.figure.setAttribute("height", height);
    const last = points.map((part, k) => (part.length ? `${this.curves[k].name} ${this.format(part.at(-1)[3])}` : "")).filter(Boolean);
    this.figure.setAttribute("aria-label", `${this.name}: ${this.y} against ${this.x}. Newest: ${last.join(", ")}.`);
    this.figure.replaceChildren(...parts, this.band, this.cross);
    this.point(this.at);
  }

  // [[x, y, fresh], …] of a curve inside the range, without values that are not known. fresh: the curve begins anew here.
  points(curve) {
    const [low, high] = this.range ?? [-Infinity, Infinity];
    const found = [];
    for (let k = 0; k < curve.x.length; k += 1) {
      const [x, y] = [curve.x[k], curve.y[k]];
      if (x !== null && y !== null && x >= low && x <= high) found.push([x, y, this.gaps && k > 0 && curve.y[k - 1] === null, curve.own?.[k] ?? y]);
    }
    return found;
  }

  point(x) {
    this.at = x;
    if (!this.scale) return;
    if (x === null) {
      this.cross.setAttribute("d", "");
      this.values.textContent = "";
      return;
    }
    const near = this.curves.map((curve) => nearest(this.points(curve), x));
    const place = near.find(Boolean);
    if (!place) return;
    this.cross.setAttribute("d", `M${this.scale.toX(place[0]).toFixed(1)} ${this.scale.box.top}V${this.scale.box.bottom}`);
    const told = near.map((point, k) => (point ? `${this.curves[k].name} ${this.format(point[3])}` : null)).filter(Boolean);
    this.values.textContent = `${this.x} ${amount(place[0])}: ${told.join(", ")}`;
  }

  place(event) {
    const bounds = this.figure.getBoundingClientRect();
    return ((event.clientX - bounds.left) / bounds.width) * this.figure.viewBox.baseVal.width;
  }

  follow(event) {
    if (!this.scale) return;
    const place = this.place(event);
    if (this.from !== undefined) {
      this.band.setAttribute("x", Math.min(place, this.from));
      this.band.setAttribute("width", Math.abs(place - this.from));
    }
    this.point(this.scale.fromX(place));
  }

  grab(event) {
    if (!this.scale || event.button || event.pointerType === "touch") return;
    this.from = this.place(event);
    this.figure.setPointerCapture(event.pointerId);
  }

  drop(event) {
    if (this.from === undefined) return;
    const [from, to] = [this.from, this.place(event)].sort((a, b) => a - b);
    this.from = undefined;
    if (to - from > 8) this.range = [this.scale.fromX(from), this.scale.fromX(to)];
    this.draw();
  }

  key(event) {
    if (!this.scale) return;
    const known = this.points(this.curves.find((curve) => curve.x.length) ?? { x: [], y: [] }).map((point) => point[0]);
    const now = this.at === null ? -1 : known.indexOf(nearest(known.map((x) => [x, 0]), this.at)?.[0]);
    const steps = { ArrowRight: now + 1, ArrowLeft: now < 0 ? known.length - 1 : now - 1, Home: 0, End: known.length - 1 };
    if (event.key === "Escape") this.reset();
    else if (event.key in steps) this.point(known[Math.max(0, Math.min(known.length - 1, steps[event.key]))] ?? null);
    else return;
    event.preventDefault();
  }
}

function nearest(points, x) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
  return best;
}

// A histogram. bars: [{name, value, class}]; each has its share above it.
class Bars {
  constructor(host) {
    this.host = host;
    this.figure = svg("svg", { role: "img" });
    this.bars = [];
    host.replaceChildren(this.figure);
    new ResizeObserver(() => this.draw()).observe(host);
  }

  show(bars, { x, name }) {
    [this.bars, this.x, this.name] = [bars, x, name];
    this.draw();
  }

  draw() {
    const total = this.bars.reduce((sum, bar) => sum + bar.value, 0);
    if (!total) return;
    const width = Math.max(220, this.host.clientWidth);
    const [height, base, top] = [200, 158, 20];
    const wide = Math.min(90, (width - 16) / this.bars.length);
    const left = (width - wide * this.bars.length) / 2;
    const tallest = most(this.bars.map((bar) => bar.value));
    const every = Math.ceil(26 / wide);
    const parts = [svg("path", { d: `M8 ${base}H${width - 8}`, class: "axis" })];
    this.bars.forEach((bar, k) => {
      const tall = ((base - top) * bar.value) / tallest;
      const middle = left + wide * (k + 0.5);
      parts.push(svg("rect", { x: left + wide * k + wide * 0.1, y: base - tall, width: wide * 0.8, height: tall, class: bar.class }));
      if (wide >= 34 && bar.value) parts.push(svg("text", { x: middle, y: base - tall - 5, "text-anchor": "middle" }, percent(bar.value / total)));
      if (k % every === 0) parts.push(svg("text", { x: middle, y: base + 16, "text-anchor": "middle" }, bar.name));
    });
    parts.push(svg("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, this.x));
    this.figure.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.figure.setAttribute("height", height);
    this.figure.setAttribute("aria-label", `${this.name}: ${this.bars.map((bar) => `${bar.name}: ${percent(bar.value / total)}`).join(", ")}.`);
    this.figure.replaceChildren(...parts);
  }
}

function percent(share) {
  return share > 0 && share < 0.01 ? "<1 %" : `${Math.round(100 * share)} %`;
}

// Math.min of an array of any length: a spread of it would overflow the stack.
function least(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

function most(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}
