// The page of `vflbench report`: everything it shows is in the JSON at its end. No library, no request.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const AXES = {
  communication_seconds: { name: "communication time", unit: "s" },
  bytes: { name: "bytes sent", unit: "B" },
  round: { name: "rounds", unit: "" },
  cost: { name: "weighted cost", unit: "B" },
  epsilon: { name: "epsilon", unit: "" },
  virtual_seconds: { name: "running time", unit: "s" },
};
const SLIDERS = {
  latency: { from: 0.01, to: 1000, start: 136 }, // ms
  bandwidth: { from: 0.01, to: 100, start: 0.42 }, // Gbit/s
  ratio: { from: 0.1, to: 100, start: 1 },
};
const state = {
  panel: 0, axis: null, log: false, split: null, sort: null, hidden: new Set(), // the reader's view
  repriced: false, weighted: false, latency: 136, bandwidth: 0.42, ratio: 1, // the network; false: as the runs had it
  targets: DATA.panels.map((panel) => panel.target), run: null, network: "as_run", clock: null,
  limits: { epsilon: null, bytes: null, seconds: null }, // what the headline may need at most
};
const $ = (id) => document.getElementById(id);

// --- prices: the same formulas as vflbench/results/pricing.py ------------------------------------------------------------

// Seconds of the longest of some chains of messages, [latencies, bytes, latencies, bytes, ...]; bandwidth null: unbounded.
function seconds(chains, latencyMs, bandwidthGbps) {
  const rate = bandwidthGbps === null ? 0 : 8 / (bandwidthGbps * 1e9);
  let longest = 0;
  for (let i = 0; i < chains.length; i += 2) longest = Math.max(longest, (chains[i] * latencyMs) / 1e3 + chains[i + 1] * rate);
  return longest;
}

function cost(clientServer, clientClient, ratio) {
  return clientServer * ratio + clientClient;
}

// A run's position on an axis at each of its evaluations.
function along(run, axis) {
  if (axis === "communication_seconds" && state.repriced && run.chains)
    return run.chains.map((chains) => seconds(chains, state.latency, state.bandwidth));
  if (axis === "cost" && state.weighted && run.links) return run.links.map(([cs, cc]) => cost(cs, cc, state.ratio));
  return run.axes[axis];
}

// Whether a run's values on this axis are those it had, though the others' are priced anew.
function asItWas(run, axis) {
  return (axis === "communication_seconds" && state.repriced && !run.chains) || (axis === "cost" && state.weighted && !run.links);
}

// Whether a run was made on the chosen network.
function there(run) {
  return state.network in DATA.networks && panel().lines[run.line].network === state.network;
}

// --- what is compared ---------------------------------------------------------------------------------------------------

const panel = () => DATA.panels[state.panel];
const runsOf = (line) => line.runs.map((place) => panel().runs[place]);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const deviation = (values) => {
  const centre = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
};
const last = (values) => values[values.length - 1];
const better = (a, b) => (panel().goal === "max" ? a >= b : a <= b);
const sends = (line) => runsOf(line).some((run) => run.bytes > 0);

// Why a line is not compared with the others now; null where it is.
function leftOut(line) {
  const runs = runsOf(line);
  const fixed = runs.find((run) => run.why && !there(run));
  if (state.axis === "communication_seconds" && line.time_dependent) return "its course depends on time, so it has no communication time of its own; compare bytes or running time";
  if (state.repriced && fixed) return fixed.why;
  if (state.repriced && state.axis === "virtual_seconds" && !runs.every(there)) return "running time is not re-priced here";
  if (state.axis === "cost" && state.weighted && runs.some((run) => !run.links)) return runs.find((run) => !run.links).why;
  if (state.axis === "virtual_seconds" && line.clock !== state.clock) return `its compute clock is ${line.clock}, not ${state.clock}`;
  return null;
}

// Which of the reader's limits a row exceeds.
function exceeds(line) {
  const { epsilon, bytes, seconds: most } = state.limits, found = [];
  const needs = (axis) => toTarget(line, axis).value ?? total(line, axis);
  if (epsilon !== null && !(line.epsilon !== null && line.epsilon <= epsilon)) found.push(line.epsilon === null ? "no privacy" : `epsilon above ${digits(epsilon)}`);
  if (bytes !== null && needs("bytes") > bytes) found.push(`more than ${shown(bytes, "bytes")}`);
  if (most !== null && line.time_dependent) found.push("no communication time");
  else if (most !== null && needs("communication_seconds") > most) found.push(`more than ${shown(most, "communication_seconds")}`);
  return found;
}

// 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom; beyond them the normal one is near enough.
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042];

// The 95 % interval of the paired difference of `b` from `a` over their common seeds, of logarithms where all values are
// positive: {seeds, low, high, ratio}, with `tie` where it holds no difference; null with fewer than two common seeds.
function compare(a, b) {
  const pairs = Object.keys(a).filter((seed) => seed in b).map((seed) => [a[seed], b[seed]]);
  if (pairs.length < 2) return null;
  const ratio = pairs.every(([x, y]) => x > 0 && y > 0);
  const differences = pairs.map(([x, y]) => (ratio ? Math.log(y) - Math.log(x) : y - x));
  const half = ((STUDENT[pairs.length - 2] ?? 1.96) * deviation(differences)) / Math.sqrt(pairs.length), centre = mean(differences);
  const [low, high] = [centre - half, centre + half].map((value) => (ratio ? Math.exp(value) : value));
  const nothing = ratio ? 1 : 0;
  return { seeds: pairs.length, low, high, ratio, tie: low <= nothing && nothing <= high };
}

// Mean position on `axis` over the runs that reach the target on the judged split, and how many do.
function toTarget(line, axis) {
  const target = state.targets[state.panel];
  const found = [], bySeed = {};
  for (const run of runsOf(line)) {
    if (target === null || !run.scores[panel().judged]) continue;
    const place = run.scores[panel().judged].findIndex((score) => score !== null && better(score, target));
    const value = place < 0 ? null : (along(run, axis) || [])[place];
    if (value === null || value === undefined) continue;
    found.push(value);
    bySeed[run.seed] = value;
  }
  return { count: found.length, of: line.runs.length, value: found.length ? mean(found) : null, bySeed };
}

function total(line, axis) {
  const ends = runsOf(line).map((run) => last(along(run, axis) || [null])).filter((value) => value !== null);
  return ends.length ? mean(ends) : null;
}

// Lines, best first: those of which most seeds reach the target, by how soon; then the others by their selected value.
// Behind them those beyond the reader's limits, those that send nothing, and those that cannot be compared now.
function ranking() {
  const rows = panel().lines.map((line) => {
    const why = leftOut(line), over = why === null ? exceeds(line) : [];
    return { line, sends: sends(line), goal: toTarget(line, state.axis), why, over, ranked: why === null && sends(line) && !over.length };
  });
  const score = (row) => row.line.selected ?? row.line.final;
  rows.sort((a, b) => {
    const group = (row) => (row.ranked ? 0 : row.why !== null ? 3 : row.sends ? 1 : 2);
    if (group(a) !== group(b)) return group(a) - group(b);
    const share = b.goal.count / b.goal.of - a.goal.count / a.goal.of;
    if (share) return share;
    if (a.goal.count && a.goal.value !== b.goal.value) return a.goal.value - b.goal.value;
    return score(a) === score(b) ? 0 : better(score(a), score(b)) ? -1 : 1;
  });
  rows.forEach((row, place) => {
    row.rank = row.ranked ? place + 1 : null;
    // against the row above: by how soon both reach the target in every seed
    const above = rows[place - 1];
    row.by = row.ranked && above && [row, above].every(({ goal }) => goal.count && goal.count === goal.of) ? { above: compare(above.goal.bySeed, row.goal.bySeed) } : null;
  });
  return rows;
}

// Mean and deviation of a line's runs at every x of any of them that lies within all of them (as plots/curves.py draws them).
function averaged(line) {
  const log = panel().log;
  const curves = runsOf(line).map((run) => {
    const xs = along(run, state.axis) || [];
    const points = [];
    (run.scores[state.split] || []).forEach((y, i) => {
      if (y !== null && xs[i] !== null && xs[i] !== undefined && (!log || y > 0) && (!state.log || xs[i] > 0))
        points.push([xs[i], log ? Math.log10(y) : y, run.axes.round[i]]);
    });
    return points.sort((a, b) => a[0] - b[0]);
  }).filter((points) => points.length);
  if (!curves.length) return [];
  const start = Math.max(...curves.map((points) => points[0][0])), end = Math.min(...curves.map((points) => last(points)[0]));
  const grid = [...new Set(curves.flatMap((points) => points.map((point) => point[0])).filter((x) => x >= start && x <= end))].sort((a, b) => a - b);
  const places = curves.map(() => 0);
  return grid.map((x) => {
    const ys = curves.map((points, which) => {
      while (places[which] + 1 < points.length && points[places[which] + 1][0] <= x) places[which] += 1;
      const a = points[places[which]], b = points[places[which] + 1];
      return b && x > a[0] ? a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]) : a[1];
    });
    const centre = mean(ys), sd = ys.length > 1 ? deviation(ys) : 0;
    const back = (y) => (log ? 10 ** y : y);
    return { x, y: back(centre), low: back(centre - sd), high: back(centre + sd), n: ys.length, round: curves[0][places[0]][2] };
  });
}

// --- text ---------------------------------------------------------------------------------------------------------------

function digits(value, count = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return Number(value.toPrecision(count)).toExponential().replace("e+", "e");
  return size >= 10 ** count ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(count)));
}

function shown(value, axis) {
  if (value === null || value === undefined) return "–";
  const unit = AXES[axis].unit;
  if (unit !== "B") return digits(value) + (unit ? " " + unit : "");
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [divisor, prefix] = prefixes.find(([size]) => value >= size) || [1, ""];
  return `${digits(value / divisor)} ${prefix}B`;
}

const scored = (value) => (panel().log ? digits(value, 2) : value === null ? "–" : value.toFixed(4));
const spread = (value, sd) => scored(value) + (sd === null ? "" : ` ± ${panel().log ? digits(sd, 2) : sd.toFixed(4)}`);
const title = (line) => line.label + (line.words ? ` · ${line.words}` : "");

function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// A part of an SVG. What a run folder says becomes a text or an attribute, never markup.
function shape(name, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function drawAnswer(rows) {
  const target = state.targets[state.panel], box = $("answer");
  box.replaceChildren();
  if (target === null) {
    box.append(panel().target_why + ".");
    return;
  }
  const goal = `${panel().judged === "val" ? "validation" : "training"} ${panel().metric} ${panel().goal === "max" ? "≥" : "≤"} ${digits(target, 4)}`;
  const [first, second] = rows.filter((row) => row.ranked && row.goal.count === row.goal.of);
  const beyond = rows.filter((row) => row.over.length && row.sends);
  const limits = beyond.length ? ` Beyond your limits: ${beyond.map((row) => `${title(row.line)} (${row.over.join(", ")})`).join("; ")}.` : "";
  if (!first) {
    box.append(`No method that communicates ${beyond.length ? "is within your limits and " : ""}reaches ${goal} in every seed.${limits}`);
    return;
  }
  const seeds = first.goal.of > 1 ? `, mean of ${first.goal.of} seeds` : "";
  box.append(`Least ${AXES[state.axis].name} to ${goal}: `, element("strong", {}, title(first.line)), `, ${shown(first.goal.value, state.axis)}${seeds}.`);
  if (second) {
    const ratio = second.goal.value / first.goal.value, sure = second.by.above;
    const times = ratio >= 1.05 && Number.isFinite(ratio) ? ` (${digits(ratio, 2)} times as much)` : "";
    const span = (found) => `95 % interval of the ${found.ratio ? "ratio" : "difference"}: ${digits(found.low)} to ${digits(found.high)}, ${found.seeds} common seeds`;
    const next = `${title(second.line)}, ${shown(second.goal.value, state.axis)}${times}`;
    if (sure === null) box.append(` Next: ${next}. Fewer than two common seeds: no statement on how sure this is.`);
    else box.append(sure.tie ? ` A tie with ${next}; ${span(sure)}.` : ` Next: ${next}; ${span(sure)}.`);
  }
  box.append(limits);
}

function drawRule() {
  const left = panel().runs.filter((run) => run.why && !there(run));
  const parts = [];
  if (!state.repriced) parts.push(`Times as the runs had them: ${DATA.panels[state.panel].rule}.`);
  else {
    parts.push(`Times re-priced: every link ${digits(state.latency)} ms, ${state.bandwidth === null ? "unbounded" : digits(state.bandwidth) + " Gbit/s"}, rule "round", computing taken as 0.`);
    parts.push(`Exact by that rule for ${panel().runs.length - left.length} of ${panel().runs.length} runs.`);
  }
  const clocks = [...new Set(panel().lines.map((line) => line.clock))];
  if (state.axis === "virtual_seconds" && clocks.length > 1) parts.push(`Only runs with compute clock ${state.clock}.`);
  if (state.weighted) parts.push(`Cost: a byte client-server counts ${digits(state.ratio)} times one client-client.`);
  $("rule").textContent = parts.join(" ");
}

// What is not ranked now, why, and the command that would make it comparable.
function drawLeftOut(rows) {
  const out = rows.filter((row) => row.why !== null);
  $("not_ranked").replaceChildren(...out.map(({ line, why }) => {
    const item = element("li", {}, `† ${title(line)} is not ranked: ${why}.`);
    if (state.repriced && line.again && !runsOf(line).every(there)) item.append(" Train it there: ", element("code", {}, `${line.again} ${networkWords()}`));
    return item;
  }));
  $("not_ranked").hidden = !out.length;
}

// The overrides of the chosen network.
function networkWords() {
  if (DATA.networks[state.network]) return `network=${state.network}`;
  const each = (kind) => `network.${kind}.latency_ms=${state.latency} network.${kind}.bandwidth_gbps=${state.bandwidth}`;
  return `network=ideal ${each("client_server")} ${each("client_client")}`;
}

// --- table --------------------------------------------------------------------------------------------------------------

const COLUMNS = [
  { key: "rank", head: "#", number: true, cell: (row) => (row.rank === null ? "" : row.rank + certainty(row)), value: (row) => row.rank ?? Infinity },
  { key: "method", head: "method and what differs", cell: (row) => title(row.line), value: (row) => title(row.line) },
  { key: "seeds", head: "seeds", number: true, cell: (row) => row.line.runs.length, value: (row) => row.line.runs.length },
  { key: "selected", head: "selected", number: true, best: true, cell: (row) => spread(row.line.selected, row.line.selected_sd), value: (row) => row.line.selected },
  { key: "final", head: "final", number: true, best: true, cell: (row) => spread(row.line.final, row.line.final_sd), value: (row) => row.line.final },
  ...["bytes", "communication_seconds", "cost"].map((axis) => ({
    key: axis, head: { bytes: "sent", communication_seconds: "communication", cost: "cost" }[axis], number: true, axis, value: (row) => total(row.line, axis),
  })),
  ...["bytes", "communication_seconds", "cost"].map((axis) => ({
    key: `${axis}_to_target`, head: { bytes: "sent", communication_seconds: "time", cost: "cost" }[axis] + " to target", number: true, axis, target: true,
    value: (row) => toTarget(row.line, axis).value,
  })),
  { key: "epsilon", head: "epsilon", number: true, cell: (row) => digits(row.line.epsilon), value: (row) => row.line.epsilon },
];

// Whether a row's distance from the one above is more than chance.
function certainty(row) {
  if (!row.by) return "";
  return row.by.above === null ? " ?" : row.by.above.tie ? " ≈" : "";
}

function cell(column, row) {
  if (!column.axis) return String(column.cell(row));
  if (column.axis === "communication_seconds" && row.line.time_dependent) return "–";
  const mark = runsOf(row.line).some((run) => asItWas(run, column.axis)) ? " †" : "";
  if (!column.target) return shown(column.value(row), column.axis) + mark;
  const goal = toTarget(row.line, column.axis);
  if (!goal.count) return state.targets[state.panel] === null ? "–" : "not reached";
  return shown(goal.value, column.axis) + (goal.count < goal.of ? ` (${goal.count} of ${goal.of})` : "") + mark;
}

function drawTable(rows) {
  const columns = COLUMNS.filter(({ key }) => !["epsilon", "selected"].includes(key) || panel().lines.some((line) => line[key] !== null));
  const head = element("tr");
  for (const column of columns) {
    const sorted = (state.sort && state.sort.key === column.key) || (!state.sort && column.key === "rank");
    const button = element("button", { type: "button" }, column.head + (sorted ? (state.sort && state.sort.down ? " ▼" : " ▲") : ""));
    button.onclick = () => {
      const again = state.sort && state.sort.key === column.key;
      state.sort = { key: column.key, down: again ? !state.sort.down : Boolean(column.best) && panel().goal === "max" };
      draw();
    };
    const th = element("th", column.number ? { class: "number", scope: "col" } : { scope: "col" });
    if (column.target && column.axis === state.axis) th.classList.add("by");
    th.append(button);
    head.append(th);
  }
  const order = [...rows];
  if (state.sort) {
    const column = COLUMNS.find((one) => one.key === state.sort.key), sign = state.sort.down ? -1 : 1;
    order.sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1; // without a value: last, either way
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
  }
  const body = order.map((row) => {
    const tr = element("tr", { "data-line": title(row.line) });
    if (state.hidden.has(row.line)) tr.classList.add("hidden");
    for (const column of columns) {
      const td = element("td", column.number ? { class: "number" } : {});
      if (column.key === "method") {
        const button = element("button", { type: "button", title: "show or hide its curve", "aria-pressed": String(!state.hidden.has(row.line)) });
        button.append(swatch(row.line), element("b", {}, row.line.label), row.line.words ? ` ${row.line.words}` : "");
        button.onclick = () => {
          if (!state.hidden.delete(row.line)) state.hidden.add(row.line);
          draw();
        };
        td.append(button);
      } else td.textContent = cell(column, row);
      if (column.target && column.axis === state.axis) td.classList.add("by");
      tr.append(td);
    }
    return tr;
  });
  $("ranking").querySelector("thead").replaceChildren(head);
  $("ranking").querySelector("tbody").replaceChildren(...body);
}

// --- chart --------------------------------------------------------------------------------------------------------------

const SHAPES = {
  s: "M-3.5-3.5H3.5V3.5H-3.5Z", "^": "M0-4.5 4.2 3.5H-4.2Z", v: "M0 4.5 4.2-3.5H-4.2Z", D: "M0-4.6 4.6 0 0 4.6-4.6 0Z",
  P: "M-1.6-4.5H1.6V-1.6H4.5V1.6H1.6V4.5H-1.6V1.6H-4.5V-1.6H-1.6Z", X: "M-4.2-2 -2-4.2 0-2.2 2-4.2 4.2-2 2.2 0 4.2 2 2 4.2 0 2.2-2 4.2-4.2 2-2.2 0Z",
  h: "M-2.2-4H2.2L4.4 0 2.2 4H-2.2L-4.4 0Z", "*": "M0-5 1.3-1.6 4.8-1.5 2 .6 3 4 0 2-3 4-2 .6-4.8-1.5-1.3-1.6Z",
};

function marker(line, x, y) {
  const at = { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, fill: line.color };
  return SHAPES[line.marker] ? shape("path", { ...at, d: SHAPES[line.marker] }) : shape("circle", { ...at, r: 3.7 });
}

function stroke(line, path) {
  const dashes = { "-": "", "--": "7 3", "-.": "8 3 2 3", ":": "2 3" }[line.linestyle];
  return shape("path", { d: path, fill: "none", stroke: line.color, "stroke-width": 1.9, "stroke-dasharray": dashes });
}

function ticks(low, high, log, wanted) {
  if (log) {
    const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), every = Math.max(1, Math.ceil((to - from) / wanted));
    const found = [];
    for (let power = from; power <= to; power += every)
      for (const digit of to - from <= 2 ? [1, 2, 5] : [1]) if (digit * 10 ** power >= low && digit * 10 ** power <= high) found.push(digit * 10 ** power);
    return found;
  }
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

let drawn = []; // what can be pointed at: {line, point, x, y}

function drawChart(rows) {
  const box = $("chart"), width = Math.max(280, box.clientWidth), height = width < 560 ? 300 : 400;
  const edge = { left: 62, right: 14, top: 12, bottom: 46 };
  // what cannot be compared is not on the same picture
  const lines = rows.filter((row) => row.why === null).map((row) => row.line).filter((line) => !state.hidden.has(line));
  const silent = (line) => state.axis !== "round" && !sends(line);
  const curves = lines.filter((line) => !silent(line)).map((line) => ({ line, points: averaged(line) })).filter((curve) => curve.points.length);
  const levels = lines.filter(silent).map((line) => ({ line, y: line.selected ?? line.final })).filter((level) => level.y !== null);
  const target = state.targets[state.panel], yLog = panel().log;
  const xs = curves.flatMap((curve) => curve.points.map((point) => point.x));
  const ys = [...curves.flatMap((curve) => curve.points.flatMap((point) => [point.low, point.high])), ...levels.map((level) => level.y)].filter((y) => !yLog || y > 0);
  drawn = [];
  if (!ys.length) {
    box.replaceChildren(element("p", { class: "nothing" }, "Nothing to draw on this axis."));
    return;
  }
  if (target !== null && (state.split === panel().judged)) ys.push(target);
  let [left, right] = [state.log && xs.length ? Math.min(...xs) : 0, Math.max(...xs, state.log ? 1e-9 : 0)];
  if (right <= left) right = left + (left || 1);
  let [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  if (!yLog) {
    const pad = (top - bottom || Math.abs(top) || 1) * 0.06;
    [bottom, top] = [bottom - pad, top + pad];
  } else if (bottom === top) [bottom, top] = [bottom / 2, top * 2];
  const scale = (value, low, high, from, to, log) => from + ((to - from) * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)));
  const X = (x) => scale(x, left, right, edge.left, width - edge.right, state.log);
  const Y = (y) => scale(Math.max(y, yLog ? bottom : -Infinity), bottom, top, height - edge.bottom, edge.top, yLog);
  const svg = shape("svg", { width, height, role: "img", "aria-label": `${panel().metric} against ${AXES[state.axis].name}` });
  for (const y of ticks(bottom, top, yLog, 6))
    svg.append(shape("path", { class: "grid", d: `M${edge.left} ${Y(y)}H${width - edge.right}` }), shape("text", { x: edge.left - 7, y: Y(y) + 4, "text-anchor": "end" }, digits(y)));
  for (const x of ticks(left, right, state.log, width / 110))
    svg.append(shape("path", { class: "grid", d: `M${X(x)} ${edge.top}V${height - edge.bottom}` }), shape("text", { x: X(x), y: height - edge.bottom + 17, "text-anchor": "middle" }, shown(x, state.axis)));
  const split = { val: "validation", test: "test", train: "training" }[state.split];
  svg.append(shape("text", { class: "name", x: (edge.left + width - edge.right) / 2, y: height - 7, "text-anchor": "middle" }, AXES[state.axis].name));
  svg.append(shape("text", { class: "name", transform: `translate(15 ${(height - edge.bottom + edge.top) / 2}) rotate(-90)`, "text-anchor": "middle" }, `${split} ${panel().metric}`));
  if (target !== null && state.split === panel().judged)
    svg.append(shape("path", { class: "target", d: `M${edge.left} ${Y(target)}H${width - edge.right}` }), shape("text", { class: "target", x: width - edge.right, y: Y(target) - 5, "text-anchor": "end" }, `target ${digits(target, 4)}`));
  for (const { line, y } of levels) {
    svg.append(shape("g", { opacity: 0.9 }, stroke({ ...line, linestyle: ":" }, `M${edge.left} ${Y(y)}H${width - edge.right}`)));
    drawn.push({ line, point: { x: null, y }, x: edge.left + 20, y: Y(y) });
  }
  for (const { line, points } of curves) {
    const upper = points.map((point) => `${X(point.x).toFixed(1)} ${Y(point.high).toFixed(1)}`), lower = points.map((point) => `${X(point.x).toFixed(1)} ${Y(point.low).toFixed(1)}`).reverse();
    if (points[0].n > 1) svg.append(shape("path", { d: `M${[...upper, ...lower].join("L")}Z`, fill: line.color, opacity: 0.13 }));
  }
  for (const { line, points } of curves.slice().reverse()) {
    svg.append(stroke(line, "M" + points.map((point) => `${X(point.x).toFixed(1)} ${Y(point.y).toFixed(1)}`).join("L")));
    const every = Math.max(1, Math.ceil(points.length / 10));
    points.forEach((point, i) => {
      if (i % every === 0 || i === points.length - 1) svg.append(marker(line, X(point.x), Y(point.y)));
      drawn.push({ line, point, x: X(point.x), y: Y(point.y) });
    });
  }
  svg.append(shape("circle", { id: "spot", r: 7, fill: "none", visibility: "hidden" }));
  const legend = [...curves, ...levels].map(({ line }) => {
    const item = element("li");
    item.append(swatch(levels.some((level) => level.line === line) ? { ...line, linestyle: ":" } : line), title(line));
    return item;
  });
  const list = element("ul", { class: "legend" });
  list.append(...legend);
  box.replaceChildren(svg, list, element("div", { id: "tip", hidden: "" }));
}

function swatch(line) {
  const made = element("span", { class: "swatch" });
  made.append(shape("svg", { width: 34, height: 12, "aria-hidden": "true" }, stroke(line, "M1 6H33"), marker(line, 17, 6)));
  return made;
}

function point(event) {
  const tip = $("tip"), spot = $("spot");
  if (!tip) return;
  const box = $("chart").getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const near = drawn.reduce((best, one) => ((one.x - x) ** 2 + (one.y - y) ** 2 < best.d ? { one, d: (one.x - x) ** 2 + (one.y - y) ** 2 } : best), { one: null, d: 60 ** 2 }).one;
  tip.hidden = !near;
  spot.setAttribute("visibility", near ? "visible" : "hidden");
  if (!near) return;
  const { line, point: at } = near;
  const where = at.x === null ? "sends nothing" : `${AXES[state.axis].name} ${shown(at.x, state.axis)}${state.axis === "round" ? "" : `, round ${digits(at.round, 6)}`}`;
  const sd = at.n > 1 ? ` (${scored(at.low)} to ${scored(at.high)}, n = ${at.n})` : "";
  tip.replaceChildren(element("b", {}, title(line)), element("br"), `${panel().metric} ${scored(at.y)}${sd}`, element("br"), where);
  spot.setAttribute("cx", near.x);
  spot.setAttribute("cy", near.y);
  spot.setAttribute("stroke", line.color);
  tip.style.left = `${Math.max(0, Math.min(near.x + 12, box.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(0, near.y - tip.offsetHeight - 10)}px`;
}

// --- who sent how much to whom ------------------------------------------------------------------------------------------

function drawTraffic() {
  const run = panel().runs[state.run], box = $("traffic");
  box.replaceChildren();
  if (!run.traffic) {
    box.append(element("p", {}, "The ledger of this run cannot be read."));
    return;
  }
  const { parties, rows } = run.traffic;
  if (!rows.length) box.append(element("p", {}, "This run sent nothing."));
  const tags = [...new Set(rows.map((row) => row[0]))];
  for (const tag of [...(tags.length > 1 ? [null] : []), ...tags]) {
    const inside = rows.filter((row) => tag === null || row[0] === tag);
    const paid = inside.filter((row) => row[3] !== "local");
    const sources = parties.map((_, i) => i).filter((i) => inside.some((row) => row[1] === i));
    const readers = parties.map((_, i) => i).filter((i) => inside.some((row) => row[2] === i));
    const sum = (src, dst) => inside.filter((row) => row[1] === src && row[2] === dst).reduce(([n, b], row) => [n + row[4], b + row[5]], [0, 0]);
    const most = Math.max(...sources.flatMap((src) => readers.map((dst) => sum(src, dst)[1])), 1);
    const free = paid.length < inside.length ? `, and inside organisations, free, ${shown(inside.filter((row) => row[3] === "local").reduce((b, row) => b + row[5], 0), "bytes")}` : "";
    const count = paid.reduce((n, row) => n + row[4], 0);
    const figure = element("figure"), table = element("table", { class: "matrix" }), head = element("tr");
    figure.append(element("figcaption", {}, `${tag ?? "all tags"}: ${count.toLocaleString("en")} messages, ${shown(paid.reduce((b, row) => b + row[5], 0), "bytes")}${free}`));
    head.append(element("th", {}, "from ↓ to →"), ...readers.map((dst) => element("th", { scope: "col" }, parties[dst])));
    table.append(head);
    for (const src of sources) {
      const tr = element("tr");
      tr.append(element("th", { scope: "row" }, parties[src]));
      for (const dst of readers) {
        const [n, b] = sum(src, dst);
        const td = element("td", n ? { title: `${n.toLocaleString("en")} messages` } : {}, n ? shown(b, "bytes") : "");
        if (n) td.style.background = `rgba(0,114,178,${(0.06 + (0.5 * b) / most).toFixed(3)})`;
        tr.append(td);
      }
      table.append(tr);
    }
    figure.append(table);
    box.append(figure);
  }
}

// --- controls -----------------------------------------------------------------------------------------------------------

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => element("option", { value, ...(value === chosen ? { selected: "" } : {}) }, text)));
}

const position = (name, value) => Math.round((1000 * Math.log(value / SLIDERS[name].from)) / Math.log(SLIDERS[name].to / SLIDERS[name].from));
const valueAt = (name, at) => Number((SLIDERS[name].from * (SLIDERS[name].to / SLIDERS[name].from) ** (at / 1000)).toPrecision(3));

function drawNetwork() {
  for (const name of Object.keys(SLIDERS)) {
    const slider = $(name), value = state[name];
    slider.value = value === null ? 1000 : position(name, Math.max(value, SLIDERS[name].from));
    const text = { latency: `${digits(value)} ms`, bandwidth: value === null ? "unbounded" : `${digits(value)} Gbit/s`, ratio: digits(value) }[name];
    const on = name === "ratio" ? state.weighted : state.repriced;
    $(`${name}_value`).textContent = on ? text : "as run";
    slider.setAttribute("aria-valuetext", on ? text : "as run");
    slider.classList.toggle("off", !on);
    const typed = $(`${name}_typed`);
    if (typed && document.activeElement !== typed) typed.value = on && value !== null ? value : "";
  }
  $("network").value = state.network;
}

function openPanel(place) {
  state.panel = place;
  state.hidden = new Set();
  state.sort = null;
  state.run = 0;
  const axes = panel().axes;
  if (!axes.includes(state.axis)) state.axis = axes[0];
  const splits = panel().splits;
  state.split = splits.includes("test") ? "test" : splits[0];
  options($("axis"), axes.map((axis) => [axis, AXES[axis].name]), state.axis);
  options($("split"), splits.map((split) => [split, { val: "validation", test: "test", train: "training" }[split]]), state.split);
  options($("run"), panel().runs.map((run, i) => [String(i), `${title(panel().lines[run.line])}, seed ${run.seed} (${run.name})`]), "0");
  const judged = panel().lines.flatMap((line) => runsOf(line).flatMap((run) => run.scores[panel().judged] || [])).filter((value) => value !== null && (!panel().log || value > 0));
  for (const id of ["target", "target_slider"]) $(id).disabled = !judged.length;
  if (judged.length) {
    const [low, high] = [Math.min(...judged), Math.max(...judged)];
    state.range = panel().log ? [Math.log10(low), Math.log10(high)] : [low, high];
  }
  const clocks = panel().lines.map((line) => line.clock), distinct = [...new Set(clocks)];
  const count = (clock) => clocks.filter((one) => one === clock).length;
  if (!distinct.includes(state.clock)) state.clock = distinct.reduce((most, one) => (count(one) > count(most) ? one : most));
  options($("clock"), distinct.map((clock) => [clock, clock]), state.clock);
  for (const button of $("panels").children) button.setAttribute("aria-pressed", String(Number(button.dataset.panel) === place));
  for (const part of document.querySelectorAll("[data-of-panel]")) part.hidden = Number(part.dataset.ofPanel) !== place;
  drawTraffic();
  draw();
}

function drawTarget() {
  const target = state.targets[state.panel];
  $("target").value = target === null ? "" : Number(target.toPrecision(4));
  if (target === null || !state.range) return;
  const value = panel().log ? Math.log10(target) : target, [low, high] = state.range;
  $("target_slider").value = Math.round((1000 * (value - low)) / (high - low || 1));
}

function draw() {
  const rows = ranking();
  $("clock").parentElement.hidden = state.axis !== "virtual_seconds" || $("clock").options.length < 2;
  remember();
  drawNetwork();
  drawTarget();
  drawRule();
  drawAnswer(rows);
  drawChart(rows);
  drawTable(rows);
  drawLeftOut(rows);
}

// The reader's view is in the address, so that it can be sent on.
function remember() {
  const view = new URLSearchParams({ panel: state.panel, axis: state.axis, split: state.split });
  if (state.log) view.set("log", "1");
  if (state.targets[state.panel] !== panel().target) view.set("target", state.targets[state.panel]);
  if (state.axis === "virtual_seconds") view.set("clock", state.clock);
  if (state.repriced) view.set("network", state.network || `${state.latency},${state.bandwidth ?? ""}`);
  if (state.weighted) view.set("ratio", state.ratio);
  for (const [key, limit] of Object.entries(state.limits)) if (limit !== null) view.set(key, limit);
  history.replaceState(null, "", `#${view}`);
}

// The view of the address; what is not possible there is passed over.
function recall() {
  const view = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (view.get(key) !== null && view.get(key) !== "" && Number.isFinite(Number(view.get(key))) ? Number(view.get(key)) : null);
  const place = DATA.panels[number("panel")] ? number("panel") : 0, one = DATA.panels[place];
  if (one.axes.includes(view.get("axis"))) state.axis = view.get("axis");
  if (one.lines.some((line) => line.clock === view.get("clock"))) state.clock = view.get("clock");
  if (number("target") !== null && (!one.log || number("target") > 0)) state.targets[place] = number("target");
  if (number("ratio") > 0) [state.weighted, state.ratio] = [true, number("ratio")];
  for (const key of Object.keys(state.limits)) state.limits[key] = number(key);
  const [latency, bandwidth] = (view.get("network") || "").split(",");
  if (DATA.networks[latency]) choose(latency);
  else if (Number(latency) > 0 && !(Number(bandwidth) < 0)) {
    [state.repriced, state.network, state.latency, state.bandwidth] = [true, "", Number(latency), Number(bandwidth) || null];
  }
  $("log").checked = state.log = view.get("log") === "1";
  return { place, split: one.splits.includes(view.get("split")) ? view.get("split") : null };
}

function choose(name) {
  [state.repriced, state.network] = [name !== "as_run", name];
  if (DATA.networks[name]) [state.latency, state.bandwidth] = DATA.networks[name];
}

function start() {
  DATA.panels.forEach((one, place) => {
    const button = element("button", { type: "button", "data-panel": place }, one.title);
    button.onclick = () => openPanel(place);
    $("panels").append(button);
  });
  $("panels").hidden = DATA.panels.length < 2;
  $("axis").onchange = (event) => { state.axis = event.target.value; draw(); };
  $("split").onchange = (event) => { state.split = event.target.value; draw(); };
  $("log").onchange = (event) => { state.log = event.target.checked; draw(); };
  $("run").onchange = (event) => { state.run = Number(event.target.value); drawTraffic(); };
  $("target").onchange = (event) => {
    const value = Number(event.target.value);
    state.targets[state.panel] = event.target.value !== "" && Number.isFinite(value) && (!panel().log || value > 0) ? value : panel().target;
    draw();
  };
  $("target_slider").oninput = (event) => {
    const value = state.range[0] + ((state.range[1] - state.range[0]) * event.target.value) / 1000;
    state.targets[state.panel] = Number((panel().log ? 10 ** value : value).toPrecision(3));
    draw();
  };
  for (const name of Object.keys(SLIDERS))
    $(name).oninput = (event) => {
      state[name] = valueAt(name, Number(event.target.value));
      if (name === "ratio") state.weighted = true;
      else [state.repriced, state.network] = [true, ""];
      look(name === "ratio" ? "cost" : "communication_seconds");
      draw();
    };
  for (const name of ["latency", "bandwidth"])
    $(`${name}_typed`).onchange = (event) => {
      const value = event.target.value === "" && name === "bandwidth" ? null : Number(event.target.value);
      if (value !== null && !(value > 0)) return;
      [state[name], state.repriced, state.network] = [value, true, ""];
      look("communication_seconds");
      draw();
    };
  const scales = { epsilon: 1, bytes: 1e6, seconds: 1 };
  for (const [name, scale] of Object.entries(scales))
    $(`most_${name}`).onchange = (event) => {
      const value = Number(event.target.value);
      state.limits[name] = event.target.value !== "" && value >= 0 ? value * scale : null;
      draw();
    };
  $("clock").onchange = (event) => { state.clock = event.target.value; draw(); };
  options($("network"), [["as_run", "as run"], ["", "own values"], ...Object.keys(DATA.networks).map((name) => [name, name])], "as_run");
  $("network").onchange = (event) => {
    choose(event.target.value);
    if (event.target.value === "as_run") state.weighted = false;
    if (state.repriced) look("communication_seconds");
    draw();
  };
  $("chart").onpointermove = point;
  $("chart").onpointerleave = () => { if ($("tip")) { $("tip").hidden = true; $("spot").setAttribute("visibility", "hidden"); } };
  window.onresize = () => drawChart(ranking());
  const view = recall();
  openPanel(view.place);
  if (view.split) [state.split, $("split").value] = [view.split, view.split];
  for (const [name, scale] of Object.entries(scales)) if (state.limits[name] !== null) $(`most_${name}`).value = state.limits[name] / scale;
  draw();
}

// Show the axis on which a slider tells.
function look(axis) {
  if (!panel().axes.includes(axis)) return;
  state.axis = axis;
  $("axis").value = axis;
}

start();
