// The panes of a run, filled from the block of JSON in this file, and on a live page from the server's events.

const given = JSON.parse(document.getElementById("data").textContent);
const runs = given.runs;
const find = (id) => document.getElementById(id);
const STATUS = { running: "running", done: "done", early: "stopped early", stopped: "stopped", failed: "failed", interrupted: "interrupted" };
const PLAIN = { objective: "objective", speed: "items per second" };
const EPOCHS = { clocks: "evaluations", iterations: "evaluations" }; // what an epoch is, by what is counted in it
let shown = 0;

const convergence = new Chart(find("convergence-chart"), "Convergence");
const speed = new Chart(find("speed-chart"), "Speed");
const lanes = new LaneChart(find("lanes-chart"), find("lanes-hover"));
const grid = new GridChart(find("grid-chart"), find("grid-hover"));

function words(name) {
  return PLAIN[name] ?? name.replace(/_(rmse|mae)$/, (found) => found.toUpperCase()).replace(/_/g, " ").replace(/ndcg@(\d+)/, "NDCG@$1");
}

function table(heads, rows, numbers = []) {
  const cell = (value, k, tag = "td") => el(tag, { class: numbers.includes(k) ? "number" : null, scope: tag === "th" ? "row" : null }, value);
  const head = el("thead", {}, el("tr", {}, ...heads.map((name, k) => el("th", { scope: "col", class: numbers.includes(k) ? "number" : null }, name))));
  const made = rows.map(({ cells, differs }) => el("tr", { class: differs ? "differs" : null }, cell(cells[0], 0, "th"), ...cells.slice(1).map((value, k) => cell(value, k + 1))));
  return el("table", {}, head, el("tbody", {}, ...made));
}

function bar(share) {
  const wide = Math.max(0, Math.min(1, share)) * 100;
  return svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { width: 100, height: 8 }), svg("rect", { width: wide, height: 8, class: "f0" }));
}

function newest(run, name) {
  return run.series[name]?.findLast((value) => value !== null) ?? null;
}

function drawRuns() {
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.series)))].filter((name) => !["epoch", "seconds", "items", "speed"].includes(name)).slice(0, 6);
  const rows = runs.map((run) => ({
    cells: [run.name, el("span", { class: `status ${run.status}` }, STATUS[run.status] ?? run.status), EPOCHS[run.config.unit] || !run.epochs ? String(newest(run, "epoch") ?? "–") : `${newest(run, "epoch") ?? 0} of ${run.epochs}`,
      duration(newest(run, "seconds")), ...metrics.map((name) => amount(newest(run, name))), run.fingerprint ?? "–"],
  }));
  const heads = ["run", "status", "epochs", "in epochs", ...metrics.map(words), "fingerprint"];
  find("runs-table").replaceChildren(table(heads, rows, metrics.map((_, k) => k + 4).concat(3)));
  const going = runs.filter((run) => run.status === "running").length;
  find("pulse").textContent = given.live && !lost ? `live, ${going ? `${going} running` : "no run is running"}` : lost ? "the server has ended; this is what it sent last" : "a report of finished work";
}

function drawFindings(run) {
  const items = run.findings.map(([level, text]) => el("li", { class: level }, text));
  find("findings-list").replaceChildren(...(items.length ? items : [el("li", {}, "Nothing unusual.")]));
}

function drawConvergence() {
  const names = [...new Set(runs.flatMap((run) => Object.entries(run.series).filter(([, values]) => values.some((value) => value !== null)).map(([name]) => name)))]
    .filter((name) => !["epoch", "seconds", "items", "speed"].includes(name));
  const choose = find("convergence-y");
  const wanted = names.includes(choose.value) ? choose.value : names.find((name) => name.startsWith("test")) ?? names[0];
  if (names.join() !== [...choose.options].map((one) => one.value).join()) {
    choose.replaceChildren(...names.map((name) => el("option", { value: name }, words(name))));
  }
  if (wanted) choose.value = wanted;
  find("convergence").hidden = !names.length && runs.every((run) => run.memory);
  find("convergence-epochs").textContent = runs.every((run) => EPOCHS[run.config.unit]) ? "evaluations" : "epochs";
  const x = find("convergence-x");
  const curves = runs.filter((run) => run.series[wanted]).map((run) => ({ name: run.name, x: run.series[x.value], y: run.series[wanted] }));
  convergence.show(curves, { x: x.selectedOptions[0].textContent, y: wanted ? words(wanted) : "", log: find("convergence-log").checked });
}

function drawSpeed(run) {
  find("speed").hidden = !run.series.speed;
  if (run.series.speed) speed.show([{ name: run.name, x: run.series.epoch, y: run.series.speed }], { x: EPOCHS[run.config.unit] ?? "epochs", y: `${run.config.unit ?? "items"} per second` });
  const passes = Object.entries(run.passes);
  const total = passes.reduce((sum, [, [seconds]]) => sum + seconds, 0) || 1;
  const rows = passes.map(([name, [seconds, count]]) => ({ cells: [name, String(count), duration(seconds), `${Math.round((100 * seconds) / total)} %`, bar(seconds / total)] }));
  find("passes-table").replaceChildren(...(rows.length ? [table(["pass", "times", "seconds", "share", ""], rows, [1, 2, 3])] : []));
}

function drawLanes(run) {
  const has = Boolean(run.lanes?.visits.length);
  find("lanes").hidden = find("grid").hidden = !has;
  if (!has) return;
  const { epoch, passes, dropped, visits } = run.lanes;
  lanes.show(run.lanes);
  grid.show(run.lanes);
  find("grid").hidden = !grid.rows;
  const busy = new Map(lanes.workers.map((worker) => [worker, 0]));
  for (const [worker, , , , , length] of visits) busy.set(worker, (busy.get(worker) ?? 0) + length);
  const what = passes.length > 1 ? `: ${passes.join(", ")}` : "";
  const left = dropped ? ` The first ${visits.length} of ${visits.length + dropped} visits are drawn.` : "";
  find("lanes-about").textContent = `Epoch ${epoch}${what}, ${visits.length} visits in ${duration(lanes.end / 1e6)}.${left} Gaps are waits.`;
  const rows = [...busy].map(([worker, time]) => ({
    cells: [`worker ${worker}`, duration(time / 1e6), `${Math.round((100 * time) / lanes.end)} %`, `${Math.round(100 - (100 * time) / lanes.end)} %`, bar(time / lanes.end)],
  }));
  find("lanes-table").replaceChildren(table(["worker", "in visits", "busy", "waiting", ""], rows, [1, 2, 3]));
  find("lanes-chart").setAttribute("aria-label", `Lanes of ${busy.size} workers in epoch ${epoch}; the table below has their shares. Keys: plus, minus, arrows, Escape.`);
  find("grid-about").textContent = `${grid.rows} × ${grid.columns} blocks in epoch ${epoch}. Colour is the worker; the fuller, the longer the visit took.`;
  find("grid-chart").setAttribute("aria-label", find("grid-about").textContent);
}

function drawNotes(run) {
  const rows = [...run.notes].reverse().map((note) => ({ cells: [note.kind, note.epoch ? String(note.epoch) : "–", duration(note.seconds), note.text] }));
  find("notes-table").replaceChildren(rows.length ? table(["event", "epoch", "after", ""], rows, [1, 2]) : el("p", { class: "empty" }, "None so far."));
}

// Settings by name; those of a mapping inside one by one.
function flat(settings) {
  return Object.fromEntries(Object.entries(settings).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [[name, value]]));
}

function text(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function drawSettings() {
  const rows = ["config", "machine", "versions"].flatMap((section) => {
    const each = runs.map((run) => flat(run[section]));
    return [...new Set(each.flatMap(Object.keys))].map((name) => {
      const values = each.map((settings) => text(settings[name]));
      return { cells: [name, ...values], differs: new Set(values).size > 1 };
    });
  });
  rows.sort((a, b) => b.differs - a.differs);
  const heads = runs.length > 1 ? ["setting (bold: it differs)", ...runs.map((run) => run.name)] : ["setting", ""];
  find("settings-table").replaceChildren(table(heads, rows));
}

function draw() {
  const run = runs[shown];
  drawRuns();
  drawFindings(run);
  drawConvergence();
  drawLanes(run);
  drawClocks(run);
  drawLinks(run);
  drawStages(run);
  drawMemory(run);
  drawSpeed(run);
  drawNotes(run);
  drawSettings();
  find("plan").hidden = !run.plan;
  find("plan-text").textContent = run.plan;
}

function listen() {
  const token = new URLSearchParams(location.search).get("token") ?? "";
  const source = new EventSource(`/events?token=${encodeURIComponent(token)}`);
  source.onmessage = (event) => {
    lost = false;
    for (const [number, part] of JSON.parse(event.data)) Object.assign(runs[number], part);
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); });
  };
  source.onopen = () => { lost = false; drawRuns(); };
  source.onerror = () => { lost = true; drawRuns(); };
}

let [lost, waiting] = [false, 0];
find("run").replaceChildren(...runs.map((run, k) => el("option", { value: k }, run.name)));
find("shown").hidden = runs.length < 2;
find("run").addEventListener("change", (event) => { shown = Number(event.target.value); draw(); });
for (const id of ["convergence-y", "convergence-x", "convergence-log"]) find(id).addEventListener("change", drawConvergence);
find("links-by").addEventListener("change", () => drawRates(runs[shown]));
find("convergence-reset").addEventListener("click", () => convergence.reset());
for (const [id, does] of Object.entries({ in: () => lanes.zoom(0.5), out: () => lanes.zoom(2), left: () => lanes.move(-0.5), right: () => lanes.move(0.5), reset: () => lanes.reset() })) {
  find(`lanes-${id}`).addEventListener("click", does);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { lanes.draw(); grid.draw(); });
draw();
if (given.live) listen();
