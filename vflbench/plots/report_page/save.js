// Downloads of the page of `vflbench report`: its picture and its table as they are shown.

function save(name, address) {
  const link = element("a", { href: address, download: name });
  link.click();
}

const textAddress = (kind, text) => `data:${kind};charset=utf-8,${encodeURIComponent(text)}`;
const fileName = (kind) => `${panel().title.toLowerCase().replace(/[^a-z0-9]+/g, "_")}_${state.axis}.${kind}`;

// The chart with its legend, as an SVG that stands alone: what the page's style sheet says is in its attributes.
function picture() {
  const chart = document.querySelector("#chart > svg");
  if (!chart) return null;
  const copy = chart.cloneNode(true), width = Number(chart.getAttribute("width")), from = Number(chart.getAttribute("height"));
  copy.querySelector("#spot").remove();
  const looks = {
    text: { "font-size": 12, fill: "#5d6875" }, "text.name": { "font-size": 13, fill: "#1d2733" }, "text.target": { fill: "#1d2733" },
    ".grid": { stroke: "#e8ebee" }, "path.target": { stroke: "#1d2733", "stroke-dasharray": "2 4" },
  };
  for (const [where, look] of Object.entries(looks))
    for (const part of copy.querySelectorAll(where)) for (const [key, value] of Object.entries(look)) part.setAttribute(key, value);
  let [x, y] = [62, from + 12];
  for (const item of document.querySelectorAll("#chart .legend li")) {
    const wide = 56 + 7 * item.textContent.length;
    if (x + wide > width && x > 62) [x, y] = [62, y + 20];
    const sign = item.querySelector("svg").cloneNode(true);
    for (const [key, value] of [["x", x], ["y", y - 8]]) sign.setAttribute(key, value);
    copy.append(sign, shape("text", { x: x + 42, y: y + 2, "font-size": 13, fill: "#1d2733" }, item.textContent));
    x += wide;
  }
  const height = y + 14;
  copy.prepend(shape("rect", { width, height, fill: "#fff" }));
  for (const [key, value] of Object.entries({ height, viewBox: `0 0 ${width} ${height}`, "font-family": "Helvetica, Arial, sans-serif" })) copy.setAttribute(key, value);
  return { width, height, text: new XMLSerializer().serializeToString(copy) };
}

// The picture on a canvas, twice as large, for `use`.
function painted(use) {
  const made = picture(), image = new Image();
  if (!made) return;
  image.onload = () => {
    const canvas = element("canvas", { width: 2 * made.width, height: 2 * made.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    use(canvas);
  };
  image.src = textAddress("image/svg+xml", made.text);
}

// A PDF of one page with a JPEG image on it, as bytes in a text.
function pdf(canvas) {
  const image = atob(canvas.toDataURL("image/jpeg", 0.95).split(",")[1]), [w, h] = [canvas.width / 2, canvas.height / 2];
  const paint = `${w} 0 0 ${h} 0 0 cm /I Do`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${w} ${h}] /Resources << /XObject << /I 4 0 R >> >> /Contents 5 0 R >>`,
    `<< /Type /XObject /Subtype /Image /Width ${canvas.width} /Height ${canvas.height} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${image.length} >>\nstream\n${image}\nendstream`,
    `<< /Length ${paint.length} >>\nstream\n${paint}\nendstream`,
  ];
  let text = "%PDF-1.4\n";
  const places = objects.map((object, i) => {
    const place = text.length;
    text += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return String(place).padStart(10, "0");
  });
  const table = text.length;
  return `${text}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${places.map((place) => `${place} 00000 n \n`).join("")}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`;
}

// The table's heads and cells as they are shown.
function shownTable() {
  const rows = [...document.querySelectorAll("#ranking tr")].map((row) => [...row.children].map((one) => one.textContent.replace(/ [▲▼]$/, "").trim()));
  return rows;
}

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "≈": "$\\approx$", "±": "$\\pm$", "†": "$\\dagger$", "–": "--", "·": "$\\cdot$" };

function latex() {
  const safe = (text) => text.replace(/[&%$#_{}]/g, "\\$&").replace(/\\(?![&%$#_{}])|[~^≈±†–·]/g, (one) => LATEX[one]);
  const [head, ...rows] = shownTable().map((row) => `  ${row.map(safe).join(" & ")} \\\\`);
  const columns = document.querySelectorAll("#ranking th").length;
  return `\\begin{tabular}{rl${"r".repeat(columns - 2)}}\n  \\hline\n${head}\n  \\hline\n${rows.join("\n")}\n  \\hline\n\\end{tabular}\n`;
}

function csv() {
  // a spreadsheet would obey a cell that begins like a formula
  const cell = (text) => `"${(/^[=@\t\r]|^[+-](?![\d.])/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  return shownTable().map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

const DOWNLOADS = {
  svg: () => { const made = picture(); if (made) save(fileName("svg"), textAddress("image/svg+xml", made.text)); },
  png: () => painted((canvas) => save(fileName("png"), canvas.toDataURL("image/png"))),
  pdf: () => painted((canvas) => save(fileName("pdf"), `data:application/pdf;base64,${btoa(pdf(canvas))}`)),
  csv: () => save(fileName("csv"), textAddress("text/csv", csv())),
  tex: () => save(fileName("tex"), textAddress("application/x-tex", latex())),
};
