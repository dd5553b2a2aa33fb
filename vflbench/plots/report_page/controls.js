// What the reader does with the page of `vflbench report`, and its start.

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

const PHASES = ["align", "setup", "predict"]; // what can be left out

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
  drawDemands();
  drawAnswer(rows);
  drawBoundNote();
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
  if (state.without.size) view.set("without", [...state.without].join(","));
  if (state.predictions !== null) view.set("predictions", state.predictions);
  for (const [key, limit] of Object.entries(state.limits)) if (limit !== null) view.set(key, limit);
  if (state.demand !== DATA.ladder[0]) view.set("demand", state.demand);
  if (state.noise !== DATA.noise) view.set("noise", state.noise);
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
  if (view.get("without") !== null) state.without = new Set(view.get("without").split(",").filter((name) => PHASES.includes(name)));
  if (number("predictions") >= 0 && number("predictions") !== null) state.predictions = number("predictions");
  for (const key of Object.keys(state.limits)) state.limits[key] = number(key) >= 0 ? number(key) : null;
  if (strength(view.get("demand") ?? "") > 0) state.demand = view.get("demand");
  if (number("noise") !== null && number("noise") >= 0) state.noise = number("noise");
  const [latency, bandwidth] = (view.get("network") || "").split(",");
  const positive = (text) => Number(text) > 0 && Number.isFinite(Number(text));
  if (Object.hasOwn(DATA.networks, latency)) choose(latency);
  else if (positive(latency) && (!bandwidth || positive(bandwidth)))
    [state.repriced, state.network, state.latency, state.bandwidth] = [true, "", Number(latency), bandwidth ? Number(bandwidth) : null];
  $("log").checked = state.log = view.get("log") === "1";
  return { place, split: one.splits.includes(view.get("split")) ? view.get("split") : null };
}

function choose(name) {
  [state.repriced, state.network] = [name !== "as_run", name];
  if (Object.hasOwn(DATA.networks, name)) [state.latency, state.bandwidth] = DATA.networks[name];
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
  $("noise").onchange = (event) => {
    const value = Number(event.target.value);
    state.noise = event.target.value !== "" && value >= 0 ? value : DATA.noise;
    draw();
  };
  for (const name of PHASES)
    $(`with_${name}`).onchange = (event) => {
      if (event.target.checked) state.without.delete(name);
      else state.without.add(name);
      draw();
    };
  $("predictions").onchange = (event) => {
    const value = Number(event.target.value);
    state.predictions = event.target.value !== "" && value >= 0 ? value : null;
    draw();
  };
  for (const [kind, download] of Object.entries(DOWNLOADS)) $(`save_${kind}`).onclick = download;
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
  for (const name of PHASES) $(`with_${name}`).checked = !state.without.has(name);
  if (state.predictions !== null) $("predictions").value = state.predictions;
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
