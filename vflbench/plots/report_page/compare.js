// The page of `vflbench report`: everything it shows is in the JSON at its end. No library, no request.
// This file says what is compared; show.js draws it, save.js lets it be downloaded, controls.js answers the reader.
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
const PHASED = ["bytes", "cost", "communication_seconds", "virtual_seconds"]; // axes on which accountings differ
const SLIDERS = {
  latency: { from: 0.01, to: 1000, start: 136 }, // ms
  bandwidth: { from: 0.01, to: 100, start: 0.42 }, // Gbit/s
  ratio: { from: 0.1, to: 100, start: 1 },
};
const state = {
  panel: 0, axis: null, log: false, split: null, sort: null, hidden: new Set(), // the reader's view
  repriced: false, weighted: false, latency: 136, bandwidth: 0.42, ratio: 1, // the network; false: as the runs had it
  targets: DATA.panels.map((panel) => panel.target), run: null, network: "as_run", clock: null,
  without: new Set(DATA.charged.without), predictions: DATA.charged.predictions, // phases; null: as many as a run says
  limits: { epsilon: null, bytes: null, seconds: null }, // what the headline may need at most
  demand: DATA.ladder[0], noise: DATA.noise, // what others may see, and the epsilon up to which noise hides it
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

// What a phase costs on an axis; of predictions 1,000.
function phase(run, name, axis) {
  const one = run.life[name];
  if (!one) return 0;
  if (axis === "bytes") return one.bytes;
  if (axis === "cost") return state.weighted && one.links ? cost(...one.links, state.ratio) : one.cost;
  if (axis === "communication_seconds" && state.repriced && one.chains) return seconds(one.chains, state.latency, state.bandwidth);
  return axis === "communication_seconds" || axis === "virtual_seconds" ? one.seconds ?? 0 : 0;
}

// What the phases that the reader chose add to an axis, on which a run has setup and training.
function beside(run, axis) {
  if (!run.life) return 0;
  const on = (name) => !state.without.has(name), align = phase(run, "align", axis);
  const predictions = on("predict") ? (phase(run, "predict", axis) * (state.predictions ?? run.predictions)) / 1000 : 0;
  return (on("align") ? align : 0) - (run.charged_before ? align : 0) - (on("setup") ? 0 : phase(run, "setup", axis)) + predictions;
}

// A run's position on an axis at each of its evaluations, with the chosen phases.
function along(run, axis) {
  const more = beside(run, axis), trained = alone(run, axis);
  return more && trained ? trained.map((value) => (value === null ? null : value + more)) : trained;
}

// The same with what the run itself sent.
function alone(run, axis) {
  if (axis === "communication_seconds" && state.repriced && run.chains)
    return run.chains.map((chains) => seconds(chains, state.latency, state.bandwidth));
  if (axis === "cost" && state.weighted && run.links) return run.links.map(([cs, cc]) => cost(cs, cc, state.ratio));
  return run.axes[axis];
}

// Whether a run's values on this axis are those it had, though the others' are priced anew.
function asItWas(run, axis) {
  return (axis === "communication_seconds" && state.repriced && !run.chains) || (axis === "cost" && state.weighted && !run.links);
}

// Whether a line has a communication time: a run that depends on time, or was in real time, has none of its own.
const timed = (line) => runsOf(line).every((run) => (state.repriced && run.chains) || (run.axes.communication_seconds || []).some((at) => at !== null));

// Whether a run was made on the chosen network.
function there(run) {
  return Object.hasOwn(DATA.networks, state.network) && panel().lines[run.line].network === state.network;
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
// Whether a line sends anything, for predictions too, where they are charged.
const sends = (line) => runsOf(line).some((run) => run.bytes > 0 || beside(run, "bytes") > 0);

// Why a line is not compared with the others now; null where it is.
function leftOut(line, wanted) {
  const runs = runsOf(line), refused = unmet(line, wanted);
  if (refused) return refused;
  if (otherEpsilon(line, wanted)) return `its epsilon is of another kind, and is not compared: ${line.guarantee}`;
  // its time there is by its own rule, not by the one that prices the others
  const fixed = runs.find((run) => run.why && !(there(run) && state.axis !== "communication_seconds"));
  if (state.repriced && fixed) return fixed.why;
  if (PHASED.includes(state.axis) && line.accounting !== panel().accounting) return `it is charged by accounting=${line.accounting}, not ${panel().accounting}`;
  if (state.axis === "communication_seconds" && !timed(line)) return "it has no communication time of its own; compare bytes or running time";
  if (state.repriced && state.axis === "virtual_seconds" && !runs.every(there)) return "running time is not re-priced here";
  if (state.axis === "cost" && state.weighted && runs.some((run) => !run.links)) return runs.find((run) => !run.links).why;
  if (state.axis === "virtual_seconds" && line.unproven) return "its running time is a prediction that was not confirmed by real processes";
  if (state.axis === "virtual_seconds" && line.clock !== state.clock) return `its compute clock is ${line.clock}, not ${state.clock}`;
  return null;
}

// Which of the reader's limits a row exceeds.
function exceeds(line) {
  const { epsilon, bytes, seconds: most } = state.limits, found = [];
  const needs = (axis) => toTarget(line, axis).value ?? total(line, axis);
  if (epsilon !== null && !(line.epsilon !== null && line.epsilon <= epsilon)) found.push(line.epsilon === null ? "no privacy" : `epsilon above ${digits(epsilon)}`);
  if (bytes !== null && needs("bytes") > bytes) found.push(`more than ${shown(bytes, "bytes")}`);
  if (most !== null && !timed(line)) found.push("no communication time");
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
  return { seeds: pairs.length, low, high, ratio, centre: ratio ? Math.exp(centre) : centre, tie: low <= nothing && nothing <= high };
}

// Geometric mean where all values are positive, as intervals are of ratios; else the mean.
const middle = (values) => (values.every((value) => value > 0) ? Math.exp(mean(values.map(Math.log))) : mean(values));

// Middle position on `axis` over the runs that reach the target on the judged split, and how many do. A seed that another
// line has, and this one has not, was lost: it did not reach the target.
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
  const of = Math.max(...panel().lines.map((one) => one.runs.length));
  return { count: found.length, of, value: found.length ? middle(found) : null, bySeed };
}

function total(line, axis) {
  const ends = runsOf(line).map((run) => last(alone(run, axis) || [null])).filter((value) => value !== null);
  return ends.length ? mean(ends) : null;
}

// Lines that meet a demand, best first: those of which most seeds reach the target, by how soon; then the others by their selected value.
// Behind them those beyond the reader's limits, those that send nothing, and those that cannot be compared now.
function ranking(wanted = demand()) {
  const rows = panel().lines.map((line) => {
    const why = leftOut(line, wanted), over = why === null ? exceeds(line) : [];
    return { line, sends: sends(line), goal: toTarget(line, state.axis), why, over, ranked: why === null && sends(line) && !over.length };
  });
  const score = (row) => row.line.selected ?? row.line.final;
  rows.sort((a, b) => {
    const group = (row) => (row.ranked ? 0 : row.why !== null ? 3 : row.sends ? 1 : 2);
    if (group(a) !== group(b)) return group(a) - group(b);
    const share = b.goal.count / b.goal.of - a.goal.count / a.goal.of;
    if (share) return share;
    if (a.goal.count && a.goal.value !== b.goal.value) return a.goal.value - b.goal.value;
    if (score(a) === null || score(b) === null) return (score(a) === null) - (score(b) === null);
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
  const back = (y) => (log ? 10 ** y : y);
  const of = (x, ys, round) => {
    const centre = mean(ys), sd = ys.length > 1 ? deviation(ys) : 0;
    return { x, y: back(centre), low: back(centre - sd), high: back(centre + sd), n: ys.length, round };
  };
  // runs that send once, each another number of bytes: a point
  const once = runsOf(line).every((run) => { const sent = alone(run, state.axis); return sent[0] > 0 && sent[0] === last(sent); });
  if (!grid.length && once) return [of(mean(curves.map((points) => last(points)[0])), curves.map((points) => last(points)[1]), last(curves[0])[2])];
  return grid.map((x) => {
    const ys = curves.map((points, which) => {
      while (places[which] + 1 < points.length && points[places[which] + 1][0] <= x) places[which] += 1;
      const a = points[places[which]], b = points[places[which] + 1];
      return b && x > a[0] ? a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]) : a[1];
    });
    return of(x, ys, curves[0][places[0]][2]);
  });
}
