// The workers' lanes and the grid of blocks, drawn on canvases, with what is under the pointer in words below them.

const LANE = 22; // pixels of a worker

function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  return { track: named("track"), ink: named("ink"), soft: named("soft"), line: named("line"), paper: named("raised"), steps: [0, 1, 2, 3, 4, 5].map((k) => named(`c${k}`)) };
}

function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "12px system-ui, sans-serif";
  return pen;
}

// Visits are [worker, row block, column block, pass, start, length], in microseconds.
function describe(visit, passes) {
  const [worker, row, column, pass, start, length] = visit;
  const block = row >= 0 ? `row block ${row}, column block ${column}` : "a block";
  const name = passes.length > 1 ? `, ${passes[pass]}` : "";
  return `worker ${worker}: ${block}${name}, from ${duration(start / 1e6)} for ${duration(length / 1e6)}`;
}

class LaneChart {
  constructor(host, hover) {
    [this.host, this.hover] = [host, hover];
    this.canvas = el("canvas", { "aria-hidden": "true" });
    host.replaceChildren(this.canvas);
    this.lanes = null;
    this.view = null; // [from, to] in microseconds, when zoomed
    host.addEventListener("pointermove", (event) => this.follow(event));
    host.addEventListener("pointerdown", (event) => this.grab(event));
    host.addEventListener("pointerup", (event) => this.drop(event));
    host.addEventListener("dblclick", () => this.reset());
    host.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  show(lanes) {
    this.lanes = lanes;
    this.end = lanes ? most(lanes.visits.map((visit) => visit[4] + visit[5])) : 0;
    this.workers = lanes ? Array.from({ length: most(lanes.visits.map((visit) => visit[0])) + 1 }, (_, worker) => worker) : [];
    if (this.view && this.view[1] > this.end) this.view = null;
    this.draw();
  }

  bounds() {
    return this.view ?? [0, this.end || 1];
  }

  draw() {
    if (!this.lanes || !this.workers.length) return;
    const width = Math.max(220, this.host.clientWidth);
    const height = this.workers.length * LANE + 24;
    const pen = sized(this.canvas, width, height);
    const ink = colours();
    const [from, to] = this.bounds();
    this.left = 74;
    this.toX = (time) => this.left + ((time - from) / (to - from)) * (width - this.left - 8);
    this.fromX = (place) => from + ((place - this.left) / (width - this.left - 8)) * (to - from);
    pen.clearRect(0, 0, width, height);
    this.workers.forEach((worker, lane) => {
      pen.fillStyle = ink.track;
      pen.fillRect(this.left, lane * LANE + 2, width - this.left - 8, LANE - 4);
      pen.fillStyle = ink.soft;
      pen.fillText(`worker ${worker}`, 2, lane * LANE + 15);
    });
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, width - this.left - 8, height);
    pen.clip();
    for (const visit of this.lanes.visits) {
      const lane = this.workers.indexOf(visit[0]);
      const x = this.toX(visit[4]);
      const wide = Math.max(1, this.toX(visit[4] + visit[5]) - x);
      pen.fillStyle = ink.steps[visit[3] % 6];
      pen.fillRect(x, lane * LANE + 2, wide, LANE - 4);
      if (wide > 3) {
        pen.fillStyle = ink.paper;
        pen.fillRect(x + wide - 0.75, lane * LANE + 2, 0.75, LANE - 4);
      }
    }
    if (this.from !== undefined && this.to !== undefined) {
      pen.globalAlpha = 0.2;
      pen.fillStyle = ink.ink;
      pen.fillRect(Math.min(this.from, this.to), 0, Math.abs(this.to - this.from), height - 22);
    }
    pen.restore();
    pen.fillStyle = ink.soft;
    pen.textAlign = "center";
    for (const tick of ticks(from, to, Math.max(2, width / 130))) pen.fillText(duration(tick / 1e6), this.toX(tick), height - 6);
    pen.textAlign = "left";
  }

  place(event) {
    return event.clientX - this.canvas.getBoundingClientRect().left;
  }

  follow(event) {
    if (!this.lanes || !this.fromX) return;
    const lane = Math.floor((event.clientY - this.canvas.getBoundingClientRect().top) / LANE);
    const place = this.place(event);
    if (this.from !== undefined) {
      this.to = place;
      this.draw();
    }
    const time = this.fromX(place);
    const near = (this.fromX(2) - this.fromX(0)) || 0;
    const found = this.lanes.visits.find((visit) => visit[0] === this.workers[lane] && time >= visit[4] - near && time <= visit[4] + visit[5] + near);
    const waits = this.workers[lane] !== undefined && time >= 0 && place >= this.left;
    this.hover.textContent = found ? describe(found, this.lanes.passes) : waits ? `worker ${this.workers[lane]} waits` : "";
  }

  grab(event) {
    if (event.button || event.pointerType === "touch" || this.place(event) < (this.left ?? 0)) return;
    this.from = this.place(event);
    this.host.setPointerCapture(event.pointerId);
  }

  drop(event) {
    if (this.from === undefined) return;
    const [from, to] = [this.from, this.place(event)].sort((a, b) => a - b);
    this.from = this.to = undefined;
    if (to - from > 8) this.view = [Math.max(0, this.fromX(from)), Math.min(this.end, this.fromX(to))];
    this.draw();
  }

  zoom(factor) {
    const [from, to] = this.bounds();
    const [middle, half] = [(from + to) / 2, ((to - from) * factor) / 2];
    this.view = half * 2 >= this.end ? null : [Math.max(0, middle - half), Math.min(this.end, middle + half)];
    this.draw();
  }

  move(share) {
    const [from, to] = this.bounds();
    const step = Math.max(-from, Math.min(this.end - to, (to - from) * share));
    this.view = this.view && [from + step, to + step];
    this.draw();
  }

  reset() {
    this.view = null;
    this.draw();
  }

  key(event) {
    const does = { "+": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.move(-0.5), ArrowRight: () => this.move(0.5), Escape: () => this.reset() };
    if (!(event.key in does)) return;
    does[event.key]();
    event.preventDefault();
  }
}

// The blocks of the newest epoch: colour is the worker, darkness the time.
class GridChart {
  constructor(host, hover) {
    [this.host, this.hover] = [host, hover];
    this.canvas = el("canvas", { "aria-hidden": "true" });
    host.replaceChildren(this.canvas);
    host.addEventListener("pointermove", (event) => this.follow(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  show(lanes) {
    this.cells = new Map();
    [this.rows, this.columns] = [0, 0];
    for (const visit of lanes?.visits ?? []) {
      const [worker, row, column, , start, length] = visit;
      if (row < 0) continue;
      const seen = this.cells.get(`${row},${column}`);
      this.cells.set(`${row},${column}`, { row, column, worker, start: seen ? Math.min(seen.start, start) : start, length: length + (seen?.length ?? 0) });
      this.rows = Math.max(this.rows, row + 1);
      this.columns = Math.max(this.columns, column + 1);
    }
    this.longest = most([...this.cells.values()].map((cell) => cell.length)) || 1;
    this.draw();
  }

  draw() {
    if (!this.rows || !this.columns) return;
    const width = Math.max(160, Math.min(460, this.host.clientWidth));
    this.size = width / Math.max(this.columns, this.rows);
    const pen = sized(this.canvas, this.host.clientWidth, this.size * this.rows);
    const ink = colours();
    pen.fillStyle = ink.track;
    pen.fillRect(0, 0, this.size * this.columns, this.size * this.rows);
    const gap = this.size > 6 ? 1 : 0;
    for (const cell of this.cells.values()) {
      pen.globalAlpha = 0.25 + 0.75 * Math.sqrt(cell.length / this.longest);
      pen.fillStyle = ink.steps[cell.worker % 6];
      pen.fillRect(cell.column * this.size, cell.row * this.size, this.size - gap, this.size - gap);
    }
    pen.globalAlpha = 1;
  }

  follow(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const [column, row] = [event.clientX - bounds.left, event.clientY - bounds.top].map((place) => Math.floor(place / this.size));
    const cell = this.cells.get(`${row},${column}`);
    this.hover.textContent = cell
      ? `row block ${row}, column block ${column}: worker ${cell.worker}, ${duration(cell.length / 1e6)}, begun after ${duration(cell.start / 1e6)}`
      : "";
  }
}
