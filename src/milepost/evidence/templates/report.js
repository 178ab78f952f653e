// Tables of many rows: only one page of rows is ever in the document.
"use strict";
const SVG = "http://www.w3.org/2000/svg";

// The same words as in the rest of the page, and in the record's other readers.
function duration(seconds) {
  if (seconds === null) return "n/a";
  for (const [limit, unit, name] of [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"]])
    if (seconds < limit) return `${Number((seconds / unit).toPrecision(3))} ${name}`;
  return `${Number((seconds / 86400).toPrecision(3))} d`;
}

// Attempts in thousandths of the whole time: [start, end, lost at the end, how it ended].
function line(attempts) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 1000 12");
  svg.setAttribute("preserveAspectRatio", "none");
  const put = (kind, x, width) => {
    const rect = document.createElementNS(SVG, "rect");
    const place = { class: kind, x, width, y: kind === "row" ? 5 : 1, height: kind === "row" ? 2 : 10 };
    for (const name in place) rect.setAttribute(name, place[name]);
    svg.append(rect);
  };
  put("row", 0, 1000);
  for (const [start, end, lost, how] of attempts) {
    put("work", start, Math.max(4, end - start));
    if (lost) put("lost", end - Math.min(lost, end - start), Math.max(3, Math.min(lost, end - start)));
    if (how) put("many-" + how, Math.min(end, 992), 8);
  }
  return svg;
}

for (const box of document.querySelectorAll("[data-table]")) {
  const data = JSON.parse(document.getElementById(box.dataset.table).textContent);
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("thead th")];
  const find = box.querySelector("input"), told = box.querySelector("output");
  const [back, on] = box.querySelectorAll(".pages button");
  const words = box.querySelector(".words");
  const size = 25;
  const kinds = data.columns.map((column, c) =>
    column.kind === "text" && data.rows.every(r => r[c] === "" || r[c] === "n/a" || (r[c].trim() !== "" && isFinite(r[c])))
      ? "digits" : column.kind);
  const isNumber = kinds.map((kind, c) => kind === "number" || kind === "duration" || (kind === "digits" && c > 0));
  const shown = (row, c) => kinds[c] === "duration" ? duration(row[c]) : kinds[c] === "line" ? "" : String(row[c]);
  const texts = data.rows.map(row => row.map((_, c) => shown(row, c)).join(" ").toLowerCase());
  // what sorting compares; null is what was not measured, and stands last either way
  const value = (row, c) => {
    if (kinds[c] !== "digits" && !isNumber[c]) return kinds[c] === "line" ? (row[c].length ? row[c][0][0] : null) : row[c];
    const number = row[c] === null || row[c] === "" ? NaN : Number(row[c]);
    return isNaN(number) ? null : number;
  };
  const all = data.rows.map((_, i) => i);
  let rows = all, page = 0, by = -1, down = false;

  function cell(tr, row, c) {
    const td = tr.insertCell();
    if (kinds[c] === "line") { td.className = "line"; td.append(line(row[c])); return; }
    td.textContent = shown(row, c);
    if (isNumber[c]) td.className = "num";
    if (kinds[c] === "verdict") td.className = "v v-" + row[c];
  }
  function draw() {
    const pages = Math.max(1, Math.ceil(rows.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    body.replaceChildren(...rows.slice(page * size, (page + 1) * size).map(i => {
      const tr = document.createElement("tr"), row = data.rows[i];
      if (row[0] === data.best) tr.className = "best";
      data.columns.forEach((_, c) => cell(tr, row, c));
      return tr;
    }));
    const count = n => n.toLocaleString("en");
    told.textContent = rows.length
      ? `${count(page * size + 1)}–${count(Math.min(rows.length, (page + 1) * size))} of ${count(rows.length)}` : "none";
    back.disabled = page === 0;
    on.disabled = page >= pages - 1;
  }
  function choose() {
    const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = wanted.length ? all.filter(i => wanted.every(word => texts[i].includes(word))) : all.slice();
    if (by >= 0) {
      const keys = data.rows.map(row => value(row, by)), sign = down ? -1 : 1;
      rows.sort((a, b) => {
        const x = keys[a], y = keys[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
      });
    }
    for (const button of words.children)
      button.setAttribute("aria-pressed", String(wanted.length === 1 && wanted[0] === button.dataset.word.toLowerCase()));
    page = 0;
    draw();
  }
  heads.forEach((th, c) => {
    const button = document.createElement("button");
    button.textContent = th.textContent;
    th.replaceChildren(button);
    if (isNumber[c]) th.classList.add("num");
    button.onclick = () => {
      down = by === c && !down;
      by = c;
      heads.forEach(h => h.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      choose();
    };
  });
  const verdict = kinds.indexOf("verdict");
  const counts = new Map();
  if (verdict >= 0) for (const row of data.rows) counts.set(row[verdict], (counts.get(row[verdict]) || 0) + 1);
  if (counts.size > 1) for (const [word, count] of counts) {
    const button = document.createElement("button");
    button.dataset.word = word;
    button.className = "v v-" + word;
    button.textContent = `${word} ${count.toLocaleString("en")}`;
    button.onclick = () => { find.value = find.value === word ? "" : word; choose(); };
    words.append(button);
  }
  find.oninput = choose;
  back.onclick = () => { page--; draw(); };
  on.onclick = () => { page++; draw(); };
  box.querySelector(".tools").hidden = data.rows.length <= 8;
  draw();
}
