// What others may see: the first question of `vflbench report`, and the best method under each demand (plots/demands.py).

const strength = (key) => DATA.ladder.indexOf(key.split("-")[0]);
// The chosen demand; where a panel has not this one, the strongest of its own that asks no more: there they are the same.
const demand = () => panel().demands.find((one) => one.key === state.demand) ?? last(panel().demands.filter((one) => strength(one.key) <= strength(state.demand)));

// The epsilon behind the noise of what a line shows: labels may have their own.
const epsilonOf = (line, what) => (what === "labels" ? line.label_epsilon : null) ?? line.epsilon;

// Why a line does not meet a demand, where noise counts up to an epsilon; null where it does.
function unmet(line, wanted, noise = state.noise) {
  if (!wanted.hides.length) return null;
  if (line.clear === null) return "what it shows is not known";
  if (!line.verified) return DATA.unverified;
  const hidden = (what) => wanted.hides.includes(what), weak = line.noised.filter((what) => epsilonOf(line, what) > noise);
  const shown = [...line.clear.filter(hidden), ...weak.filter(hidden).map((what) => `${what} at epsilon ${digits(epsilonOf(line, what), 4)}`)];
  if (shown.length) return `it shows ${shown.join(", ")}`;
  if (!wanted.guarantee || line.guarantee === wanted.guarantee) return null;
  return line.guarantee ? `its epsilon is of another kind: ${line.guarantee}` : "it has no epsilon";
}

// A demand in words.
const wordsOf = (one) => one.words + (strength(one.key) === DATA.ladder.length - 1 ? ` of epsilon ≤ ${digits(state.noise)}` : "");

// Of which kind epsilons are where they are compared: the demand's, else that of most lines.
function kindOfEpsilon(wanted) {
  const kinds = panel().lines.map((line) => line.guarantee).filter((kind) => kind !== null), count = (kind) => kinds.filter((one) => one === kind).length;
  return wanted.guarantee ?? kinds.reduce((most, kind) => (count(kind) > count(most) ? kind : most), kinds[0] ?? null);
}

// Whether an epsilon of a line is compared with others of another kind.
const otherEpsilon = (line, wanted) => (state.axis === "epsilon" || state.limits.epsilon !== null) && line.guarantee !== null && line.guarantee !== kindOfEpsilon(wanted);

// What the axis is called: an epsilon that leaves the messages open says so.
const axisName = () => (state.axis === "epsilon" && (kindOfEpsilon(demand()) ?? "").includes("; covers the model") ? "epsilon of the model only" : AXES[state.axis].name);

// What is best under a demand, as the cells of its row.
function bestUnder(wanted) {
  const rows = ranking(wanted).filter((row) => row.ranked), axes = state.axis === "bytes" ? ["bytes"] : [state.axis, "bytes"];
  const first = rows.find((row) => row.goal.count && row.goal.count === row.goal.of);
  if (!first) {
    const limited = Object.values(state.limits).some((limit) => limit !== null) ? " within your limits" : "";
    const none = state.targets[state.panel] === null ? "there is no target" : "none reaches the target in every seed";
    const near = panel().lines.filter((line) => unmet(line, wanted) !== null && unmet(line, wanted, Infinity) === null).map((line) => `; ${title(line)} has epsilon ${digits(Math.max(...line.noised.map((what) => epsilonOf(line, what))), 4)}`);
    return [element("td", { colspan: axes.length + 3, class: "nobody" }, rows.length ? none : `none of these runs${limited}${near.join("")}`)];
  }
  const { line } = first, name = element("td"), number = (text) => element("td", { class: "number" }, text);
  name.append(swatch(line), element("b", {}, title(line)));
  const shows = line.shows + (line.noised.length && line.epsilon !== null ? `, epsilon ${line.epsilon_words}` : "");
  return [name, ...axes.map((axis) => number(shown(toTarget(line, axis).value, axis))), number(spread(line.selected ?? line.final, line.selected === null ? line.final_sd : line.selected_sd)), element("td", {}, shows)];
}

function drawDemands() {
  const chosen = demand(), focused = document.activeElement && document.activeElement.name === "demand";
  const to = { communication_seconds: "time", bytes: "sent", round: "rounds", cost: "cost", epsilon: "epsilon", virtual_seconds: "time" };
  const heads = ["others may see", "best method", ...(state.axis === "bytes" ? ["bytes"] : [state.axis, "bytes"]).map((axis) => `${to[axis]} to target`), panel().metric, "others see"];
  const head = element("tr");
  head.append(...heads.map((text, place) => element("th", place > 1 && place < heads.length - 1 ? { class: "number", scope: "col" } : { scope: "col" }, text)));
  const rows = panel().demands.map((one) => {
    const tr = element("tr", one === chosen ? { "data-demand": one.key, class: "by" } : { "data-demand": one.key }), label = element("label"), cell = element("td");
    const radio = element("input", { type: "radio", name: "demand", value: one.key, ...(one === chosen ? { checked: "" } : {}) });
    radio.onchange = () => { state.demand = one.key; draw(); };
    label.append(radio, ` ${wordsOf(one)}`);
    if (one.guarantee) label.append(element("small", {}, ` ${one.guarantee}`));
    cell.append(label);
    tr.append(cell, ...bestUnder(one));
    return tr;
  });
  $("by_demand").querySelector("thead").replaceChildren(head);
  $("by_demand").querySelector("tbody").replaceChildren(...rows);
  if (document.activeElement !== $("noise")) $("noise").value = state.noise;
  if (focused) $("by_demand").querySelector("input:checked").focus();
}
