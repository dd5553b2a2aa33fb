// Texts, table and chart of `vflbench report`.

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
  const open = !demand().hides.length, where = open ? "" : ` where others may see ${wordsOf(demand())}`;
  const goal = `${panel().judged === "val" ? "validation" : "training"} ${panel().metric} ${panel().goal === "max" ? "≥" : "≤"} ${digits(target, 4)}`;
  const [first, second] = rows.filter((row) => row.ranked && row.goal.count === row.goal.of);
  const beyond = rows.filter((row) => row.over.length && row.sends);
  const limits = beyond.length ? ` Beyond your limits: ${beyond.map((row) => `${title(row.line)} (${row.over.join(", ")})`).join("; ")}.` : "";
  if (!first) {
    box.append(`No method that communicates ${open ? "" : "and meets this demand "}${beyond.length ? "is within your limits and " : ""}reaches ${goal} in every seed.${limits}`);
    return;
  }
  const seeds = first.goal.of > 1 ? `, mean of ${first.goal.of} seeds` : "";
  box.append(`Least ${axisName()} to ${goal}${where}: `, element("strong", {}, title(first.line)), `, ${shown(first.goal.value, state.axis)}${seeds}.`);
  if (second) {
    const sure = second.by.above, ratio = sure && sure.ratio ? sure.centre : second.goal.value / first.goal.value;
    const times = ratio >= 1.05 && Number.isFinite(ratio) ? ` (${digits(ratio, 2)} times as much)` : "";
    const span = (found) => `95 % interval of the ${found.ratio ? "ratio" : "difference"}: ${digits(found.low)} to ${digits(found.high)}, ${found.seeds} common seeds`;
    const next = `${title(second.line)}, ${shown(second.goal.value, state.axis)}${times}`;
    if (sure === null) box.append(` Next: ${next}. Fewer than two common seeds: no statement on how sure this is.`);
    else box.append(sure.tie ? ` A tie with ${next}; ${span(sure)}.` : ` Next: ${next}; ${span(sure)}.`);
  }
  box.append(limits);
}

function drawRule() {
  const left = panel().runs.filter((run) => run.why);
  const parts = [];
  if (!state.repriced) parts.push(`Times as the runs had them: ${DATA.panels[state.panel].rule}.`);
  else {
    parts.push(`Times re-priced: every link ${digits(state.latency)} ms, ${state.bandwidth === null ? "unbounded" : digits(state.bandwidth) + " Gbit/s"}, rule "round", computing taken as 0.`);
    parts.push(`Exact by that rule for ${panel().runs.length - left.length} of ${panel().runs.length} runs.`);
  }
  const clocks = [...new Set(panel().lines.map((line) => line.clock))];
  if (state.axis === "virtual_seconds" && clocks.length > 1) parts.push(`Only runs with compute clock ${state.clock}.`);
  if (state.weighted) parts.push(`Cost: a byte client-server counts ${digits(state.ratio)} times one client-client.`);
  if (panel().runs.some((run) => run.life) && PHASED.includes(state.axis)) parts.push(phaseWords());
  if (panel().caveat) parts.push(`${panel().caveat}.`);
  $("rule").textContent = parts.join(" ");
}

// What axis and targets have beside training.
function phaseWords() {
  const numbers = [...new Set(panel().runs.map((run) => state.predictions ?? run.predictions))].filter((number) => number !== undefined);
  const named = { align: "alignment", setup: "setup", predict: `${numbers.map((number) => number.toLocaleString("en")).join(" or ")} predictions` };
  return `Axis and target: ${["training", ...Object.keys(named).filter((name) => !state.without.has(name)).map((name) => named[name])].join(", ")}.`;
}

// What is not ranked now, why, and the command that would make it comparable.
function drawLeftOut(rows) {
  const out = rows.filter((row) => row.why !== null), alike = Object.groupBy(out, (row) => unmet(row.line, demand()) === null ? title(row.line) : row.why);
  $("not_ranked").replaceChildren(...Object.values(alike).map((some) => {
    const [{ line, why }] = some, names = some.map((row) => title(row.line)).join(", ");
    const item = element("li", {}, `† ${names} ${some.length > 1 ? "are" : "is"} not ranked: ${why}.`);
    if (state.repriced && some.length === 1 && line.again && unmet(line, demand()) === null && !runsOf(line).every(there)) item.append(" Train it there: ", element("code", {}, `${line.again} ${networkWords()}`));
    return item;
  }));
  $("not_ranked").hidden = !out.length;
}

// The overrides of the chosen network.
function networkWords() {
  if (Object.hasOwn(DATA.networks, state.network)) return `network=${state.network}`;
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
  { key: "averaged", head: "averaged model", number: true, best: true, cell: (row) => (row.line.averaged === null ? "–" : scored(row.line.averaged)), value: (row) => row.line.averaged },
  ...["bytes", "communication_seconds", "cost"].map((axis) => ({
    key: axis, head: { bytes: "sent", communication_seconds: "communication", cost: "cost" }[axis], number: true, axis, value: (row) => total(row.line, axis),
  })),
  ...["bytes", "communication_seconds", "cost"].map((axis) => ({
    key: `${axis}_to_target`, head: { bytes: "sent", communication_seconds: "time", cost: "cost" }[axis] + " to target", number: true, axis, target: true,
    value: (row) => toTarget(row.line, axis).value,
  })),
  { key: "epsilon", head: "epsilon", number: true, cell: (row) => row.line.epsilon_words ?? "–", value: (row) => row.line.epsilon },
  { key: "shows", head: "others see", cell: (row) => row.line.shows, value: (row) => row.line.shows },
];

// Whether a row's distance from the one above is more than chance.
function certainty(row) {
  if (!row.by) return "";
  return row.by.above === null ? " ?" : row.by.above.tie ? " ≈" : "";
}

function cell(column, row) {
  if (!column.axis) return String(column.cell(row));
  if (column.axis === "communication_seconds" && !timed(row.line)) return "–";
  const mark = runsOf(row.line).some((run) => asItWas(run, column.axis)) ? " †" : "";
  if (!column.target) return shown(column.value(row), column.axis) + mark;
  const goal = toTarget(row.line, column.axis);
  if (!goal.count) return state.targets[state.panel] === null ? "–" : "not reached";
  return shown(goal.value, column.axis) + (goal.count < goal.of ? ` (${goal.count} of ${goal.of})` : "") + mark;
}

function drawTable(rows) {
  const columns = COLUMNS.filter(({ key }) => !["epsilon", "selected", "averaged"].includes(key) || panel().lines.some((line) => (key === "epsilon" ? line.epsilon_words : line[key]) !== null));
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
  $("ranking").querySelector("tfoot").replaceChildren(...boundRows(columns));
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
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9 && found.length < 100; i += 1) found.push(Number((i * step).toPrecision(12)));
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
  ys.push(...drawnLevels().map(level));
  const largest = Math.max(...xs, 0);
  xs.push(...drawnBounds().filter((bound) => near(bound, largest)).map(boundX));
  let [left, right] = [state.log && xs.length ? Math.min(...xs) : 0, Math.max(...xs, state.log ? 1e-9 : 0)];
  if (right <= left) right = left + (left || 1);
  let [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  if (!yLog) {
    const flat = top - bottom <= 1e-9 * Math.max(Math.abs(top), Math.abs(bottom)); // equal but for rounding
    const pad = ((flat ? 0 : top - bottom) || Math.abs(top) || 1) * 0.06;
    [bottom, top] = [bottom - pad, top + pad];
  } else if (bottom === top) [bottom, top] = [bottom / 2, top * 2];
  const scale = (value, low, high, from, to, log) => from + ((to - from) * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)));
  const X = (x) => scale(x, left, right, edge.left, width - edge.right, state.log);
  const Y = (y) => scale(Math.max(y, yLog ? bottom : -Infinity), bottom, top, height - edge.bottom, edge.top, yLog);
  const svg = shape("svg", { width, height, role: "img", "aria-label": `${panel().metric} against ${axisName()}` });
  for (const y of ticks(bottom, top, yLog, 6))
    svg.append(shape("path", { class: "grid", d: `M${edge.left} ${Y(y)}H${width - edge.right}` }), shape("text", { x: edge.left - 7, y: Y(y) + 4, "text-anchor": "end" }, digits(y)));
  for (const x of ticks(left, right, state.log, width / 110))
    svg.append(shape("path", { class: "grid", d: `M${X(x)} ${edge.top}V${height - edge.bottom}` }), shape("text", { x: X(x), y: height - edge.bottom + 17, "text-anchor": "middle" }, shown(x, state.axis)));
  const split = { val: "validation", test: "test", train: "training" }[state.split];
  svg.append(shape("text", { class: "name", x: (edge.left + width - edge.right) / 2, y: height - 7, "text-anchor": "middle" }, axisName()));
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
  drawBounds(svg, X, Y, { left: edge.left, right: width - edge.right, top: edge.top, bottom: height - edge.bottom }, largest);
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
  const where = at.x === null ? "sends nothing" : `${axisName()} ${shown(at.x, state.axis)}${state.axis === "round" ? "" : `, round ${digits(at.round, 6)}`}`;
  const sd = at.n > 1 ? ` (${scored(at.low)} to ${scored(at.high)}, n = ${at.n})` : "";
  tip.replaceChildren(element("b", {}, title(line)), element("br"), `${panel().metric} ${scored(at.y)}${sd}`, element("br"), where);
  spot.setAttribute("cx", near.x);
  spot.setAttribute("cy", near.y);
  spot.setAttribute("stroke", line.color);
  tip.style.left = `${Math.max(0, Math.min(near.x + 12, box.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(0, near.y - tip.offsetHeight - 10)}px`;
}
