// Panes of some runs only: staleness and clocks, bytes by link, widths of stages, memory of a step.

const REASONS = { clock: "at the end of a clock", fetch: "asked for by a reader", rank: "chosen by rank", control: "control", again: "sent again", acknowledge: "acknowledgements" };
const staleness = new Bars(document.getElementById("staleness-chart"));
const spread = new Chart(document.getElementById("spread-chart"), "Clocks");
const bound = new Chart(document.getElementById("bound-chart"), "Bound");
const rates = new Chart(document.getElementById("links-chart"), "Communication");
const widths = new Chart(document.getElementById("stages-chart"), "Widths");
const memory = new Chart(document.getElementById("memory-chart"), "Memory");
const copies = new Chart(document.getElementById("copies-chart"), "Copies");

function drawClocks(run) {
  const found = run.clocks;
  find("clocks").hidden = !found;
  if (!found) return;
  const limit = found.bound;
  const total = found.staleness.reduce((sum, rows) => sum + rows, 0);
  const means = found.staleness.reduce((sum, rows, age) => sum + age * rows, 0) / (total || 1);
  const [, low, high] = found.spread.at(-1) ?? [0, 0, 0];
  const widest = most(found.spread.map(([, a, b]) => b - a));
  find("clocks-about").textContent = [
    found.rule ? `${found.rule}: ${limit === null ? "reads have no bound" : `a read is at most ${limit} clock${limit === 1 ? "" : "s"} behind`}.` : "",
    total ? `${amount(total)} rows were read, ${amount(means)} clocks behind on average.` : "",
    found.spread.length ? `Workers are at clocks ${low} to ${high}, and were at most ${widest} apart.` : ""].filter(Boolean).join(" ");
  find("clocks-read").hidden = !total;
  if (total) {
    const bars = Math.max(found.staleness.length, limit === null ? 0 : Math.min(limit + 1, 32));
    staleness.show(Array.from({ length: bars }, (_, age) => ({ name: String(age), value: found.staleness[age] ?? 0, class: limit !== null && found.rule && age > limit ? "over" : "f0" })),
      { x: "clocks behind the reader", name: "Rows read by age" });
  }
  find("clocks-time").hidden = !found.spread.length;
  const at = found.spread.map((row) => row[0]);
  spread.show([{ name: "fastest worker", x: at, y: found.spread.map((row) => row[2]) }, { name: "slowest worker", x: at, y: found.spread.map((row) => row[1]) }],
    { x: "seconds", y: "clock", step: true, gaps: true, whole: true });
  const knobs = Object.entries(found.bounds);
  find("clocks-bound").hidden = !knobs.length;
  bound.show(knobs.map(([name, rows]) => ({ name, x: rows.map((row) => row[0]), y: rows.map((row) => row[1]) })), { x: "windows of the loop", y: "clocks", step: true, gaps: true, zero: true, whole: true });
  const rows = found.workers.map((clock, worker) => {
    const share = (found.waits[worker] ?? 0) / (found.seconds || 1);
    const waits = found.waits.length ? [duration(found.waits[worker]), percent(share), bar(share)] : [];
    return { cells: [`worker ${worker}`, String(clock), ...waits] };
  });
  find("clocks-table").replaceChildren(...(rows.length ? [table(["worker", "clock", ...(found.waits.length ? ["waited", "of the time", ""] : [])], rows, [1, 2, 3])] : []));
}

function drawRates(run) {
  const { budget, rates: { links: byLink, nodes: byNode } } = run.links;
  const links = find("links-by").value === "links";
  const { at, curves } = links ? byLink : byNode;
  find("links-controls").hidden = byLink.at.length < 2;
  find("links-chart").hidden = at.length < 2;
  const limits = budget === null || links ? [] : [{ name: "budget of a node", value: budget }];
  rates.show(Object.entries(curves).map(([name, y]) => ({ name: links ? `node ${name}` : `node ${name}, all links`, x: at, y })),
    { x: "seconds", y: links ? "bytes per second by link" : "bytes per second by node", format: sentBytes, limits, zero: true, gaps: false });
}

function drawLinks(run) {
  const found = run.links;
  find("links").hidden = !found;
  if (!found) return;
  const named = (source, target) => (source < 0 ? "all other links" : `node ${source} to ${target < 0 ? "all others" : target}`);
  const sum = found.links.reduce((all, link) => all + link[2], 0);
  const rank = found.rank ? ` Rows that are sent between clocks are ranked (“${found.rank}”), the highest first.` : "";
  const budget = found.budget === null ? " There is no budget." : ` The budget of a node is ${sentBytes(found.budget)}/s; what is due at the end of a clock is sent in any case.`;
  find("links-about").textContent = `${sentBytes(sum)} in ${duration(found.seconds)} between nodes.${budget}${rank}`;
  drawRates(run);
  const own = new Map(found.limits.map(([source, target, value]) => [`${source},${target}`, value]));
  const rows = found.links.map(([source, target, nbytes]) => ({
    cells: [named(source, target), sentBytes(nbytes), `${sentBytes(nbytes / (found.seconds || 1))}/s`, own.has(`${source},${target}`) ? `${sentBytes(own.get(`${source},${target}`))}/s` : "–", bar(nbytes / (found.links[0][2] || 1))],
  }));
  find("links-table").replaceChildren(table(["link", "sent", "on average", "own budget", ""], rows, [1, 2, 3]));
  const reasons = Object.entries(found.reasons).sort((a, b) => b[1] - a[1]);
  find("reasons-table").replaceChildren(table(["sent because", "bytes", "share", ""],
    reasons.map(([name, nbytes]) => ({ cells: [REASONS[name] ?? name, sentBytes(nbytes), percent(nbytes / (sum || 1)), bar(nbytes / (sum || 1))] })), [1, 2]));
  find("first").hidden = !found.first.length;
  find("first-table").replaceChildren(table(["table", "row", "times"], found.first.map(([name, row, times]) => ({ cells: [name, String(row), amount(times)] })), [1, 2]));
}

function drawStages(run) {
  const found = run.stages;
  find("stages").hidden = !found;
  if (!found) return;
  const threads = found.stages[0][0] === "threads" && found.stages[0][2] === null;
  const seconds = new Map();
  for (const [unit, begin, end] of found.stages) seconds.set(unit, (seconds.get(unit) ?? 0) + ((end ?? begin) - begin));
  const units = [...seconds].sort((a, b) => b[1] - a[1]).map(([unit]) => unit);
  const shown = units.slice(0, units.length > 6 ? 5 : 6);
  const curves = new Map([...shown, ...(units.length > 6 ? ["other units"] : [])].map((unit) => [unit, { name: unit, x: [], y: [] }]));
  for (const [unit, begin, end, width] of found.stages) {
    const curve = curves.get(unit) ?? curves.get("other units");
    if (threads) {
      curve.x.push(begin);
      curve.y.push(width);
    } else {
      curve.x.push(begin, end, end);
      curve.y.push(width, width, null);
    }
  }
  const last = newest(run, "seconds");
  if (threads && run.elapsed !== null && curves.size) {
    const [curve] = curves.values();
    curve.x.push(Math.max(curve.x.at(-1), run.elapsed));
    curve.y.push(curve.y.at(-1));
  }
  find("stages-about").textContent = threads
    ? `The number of threads was measured: ${found.count} decision${found.count === 1 ? "" : "s"}.`
    : `${found.count} stages of ${units.length} unit${units.length === 1 ? "" : "s"} in ${duration(last ?? most(found.stages.map((stage) => stage[2])))}. Each line is as long as its stage.`;
  widths.show([...curves.values()], { x: threads ? "seconds since the start" : "seconds of the task", y: "workers", gaps: true, step: threads, zero: true, whole: true });
  const rows = [...found.why].reverse().map(([unit, begin, width, nodes, took, count, sent, why]) => ({
    cells: threads ? [duration(begin), String(width), String(count), why]
      : [unit, duration(begin), String(width), String(nodes), duration(took), String(count), bytes(sent), why],
  }));
  find("stages-table").replaceChildren(threads ? table(["after", "threads", "from epoch", "why"], rows, [0, 1, 2])
    : table(["unit", "begins", "workers", "nodes", "took", "iterations", "sent", "why"], rows, [1, 2, 3, 4, 5, 6]));
}

function drawMemory(run) {
  const found = run.memory;
  find("memory").hidden = !found;
  if (!found) return;
  const at = found.at.map((second) => 1000 * second);
  const sums = at.map(() => 0);
  const curves = Object.entries(found.kinds).map(([name, values]) => ({ name, x: at, y: values.map((value, k) => (sums[k] += value)), own: values }));
  const really = found.measured === null ? "" : ` A step really took ${bytes(found.measured)}.`;
  const plans = found.plans > 1 ? ` This is the newest of ${found.plans} plans.` : "";
  find("memory-about").textContent = `At most ${bytes(found.peak)} of ${bytes(found.budget)} on the device and ${bytes(found.host)} on the host, predicted; a step takes about ${duration(found.seconds)}.${really}${plans}`;
  memory.show(curves, { x: "milliseconds in the step", y: "bytes on the device", format: bytes, area: true, step: "pre", limits: [{ name: "budget", value: found.budget }] });
  const lanes = [["to the host", found.to_host, 2], ["from the host", found.from_host, 1]].filter(([, part]) => part.length).map(([name, part, y]) => ({
    name, x: part.flatMap(([begin, long]) => [1000 * begin, 1000 * (begin + long), 1000 * (begin + long)]), y: part.flatMap(() => [y, y, null]) }));
  find("copies-chart").hidden = !lanes.length;
  copies.show(lanes, { x: "milliseconds in the step", y: "copies", gaps: true, zero: true, low: true, marks: [1, 2], format: (value) => ({ 1: "from host", 2: "to host" })[value] });
  const rows = Object.entries(found.kinds).map(([name, values]) => {
    const peak = most(values);
    return { cells: [name, bytes(peak), percent(peak / (found.budget || 1)), bar(peak / (found.budget || 1))] };
  });
  find("memory-table").replaceChildren(table(["kind", "at most", "of the budget", ""], rows, [1, 2]));
}
