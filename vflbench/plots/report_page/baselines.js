// Floor and ceiling of `vflbench report`: what anyone could do without a federation, beside the methods.

// Seconds of sending the data on the chosen network, where every sender has a link of its own.
function boundSeconds(bound) {
  if (bound.largest === null || !state.repriced) return bound.seconds;
  return state.latency / 1e3 + (state.bandwidth === null ? 0 : (8 * bound.largest) / (state.bandwidth * 1e9));
}

// Where a bound is on the x-axis; null where it has no place there.
function boundX(bound) {
  if (bound.largest === null) return null;
  return { bytes: bound.bytes, communication_seconds: boundSeconds(bound), virtual_seconds: boundSeconds(bound) }[state.axis] ?? null;
}

// The bounds that are drawn: only where all runs have one division of the data.
const drawnBounds = () => (panel().divisions === 1 ? panel().bounds : []);
const level = (bound) => ({ test: bound.selected, val: bound.validation }[state.split] ?? null);
const drawnLevels = () => drawnBounds().filter((bound) => level(bound) !== null);

// Of the lines to draw upright, those that would not squeeze the curves, which end at `largest`.
const near = (bound, largest) => boundX(bound) !== null && boundX(bound) <= 1.5 * largest && (!state.log || boundX(bound) > 0);

function drawBounds(svg, X, Y, box, largest) {
  const levels = drawnLevels().sort((a, b) => level(a) - level(b));
  levels.forEach((bound, place) => {
    const y = Y(level(bound)), below = place === 0 && (levels.length > 1 || panel().goal === "max");
    svg.append(shape("path", { class: "bound", d: `M${box.left} ${y}H${box.right}` }), shape("text", { class: "bound", x: box.right - 2, y: y + (below ? 13 : -4), "text-anchor": "end" }, `${bound.name} ${scored(level(bound))}`));
  });
  for (const bound of drawnBounds().filter((one) => boundX(one) !== null)) {
    // its label is below, where curves seldom are, and off the levels
    const words = `${bound.name}, ${shown(boundX(bound), state.axis)}`, free = (at) => levels.every((one) => Math.abs(Y(level(one)) - at + 4) > 12);
    const y = [6, 36, 66, 96].map((up) => box.bottom - up).find(free) ?? box.bottom - 6;
    if (!near(bound, largest)) {
      svg.append(shape("text", { class: "bound", x: box.right - 2, y, "text-anchor": "end" }, `${words} →`));
      continue;
    }
    const x = X(boundX(bound)), right = x > (box.left + 2 * box.right) / 3;
    svg.append(shape("path", { class: "bound", d: `M${x} ${box.top}V${box.bottom}` }), shape("text", { class: "bound", x: x + (right ? -5 : 5), y, "text-anchor": right ? "end" : "start" }, words));
  }
}

// Rows of the table that are never ranked.
function boundRows(columns) {
  const cells = {
    method: (bound) => bound.name + (bound.words ? ` · ${bound.words}` : ""),
    selected: (bound) => (bound.selected === null ? "–" : spread(bound.selected, bound.selected_sd)),
    bytes: (bound) => shown(bound.bytes, "bytes"),
    communication_seconds: (bound) => shown(boundSeconds(bound), "communication_seconds"),
  };
  return panel().bounds.map((bound) => {
    const tr = element("tr", { class: "bound", "data-bound": bound.name, title: bound.note });
    for (const column of columns) tr.append(element("td", column.number ? { class: "number" } : {}, cells[column.key] ? cells[column.key](bound) : column.key === "rank" ? "" : "–"));
    return tr;
  });
}

function drawBoundNote() {
  $("bounds").textContent = panel().bound_note;
  $("bounds").hidden = !panel().bound_note;
}
