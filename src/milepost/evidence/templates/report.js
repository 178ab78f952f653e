// Tables of many rows: only one page of rows is ever in the document.
"use strict";
for (const box of document.querySelectorAll("[data-table]")) {
  const data = JSON.parse(document.getElementById(box.dataset.table).textContent);
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("thead th")];
  const find = box.querySelector("input"), told = box.querySelector("output");
  const [back, on] = box.querySelectorAll(".tools button");
  const size = 25;
  let rows = data.rows, page = 0, by = -1, down = false;
  const numeric = data.columns.map((_, c) =>
    data.rows.every(r => r[c] === "" || r[c] === "n/a" || (r[c].trim() !== "" && isFinite(r[c]))));
  const compare = c => numeric[c]
    ? (a, b) => (parseFloat(a[c]) || 0) - (parseFloat(b[c]) || 0)
    : (a, b) => (a[c] < b[c] ? -1 : a[c] > b[c] ? 1 : 0);
  function draw() {
    const pages = Math.max(1, Math.ceil(rows.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    body.replaceChildren(...rows.slice(page * size, (page + 1) * size).map(row => {
      const tr = document.createElement("tr");
      if (row[0] === data.best) tr.className = "best";
      row.forEach((text, c) => {
        const td = tr.insertCell();
        td.textContent = text;
        if (numeric[c] && c > 0) td.className = "num";
        if (data.columns[c] === "verdict") td.className = "v v-" + text;
      });
      return tr;
    }));
    told.textContent = rows.length ? `${page * size + 1}–${Math.min(rows.length, (page + 1) * size)} of ${rows.length}` : "none";
    back.disabled = page === 0;
    on.disabled = page >= pages - 1;
  }
  function choose() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = words.length
      ? data.rows.filter(r => { const t = r.join(" ").toLowerCase(); return words.every(w => t.includes(w)); })
      : data.rows.slice();
    if (by >= 0) { rows.sort(compare(by)); if (down) rows.reverse(); }
    page = 0;
    draw();
  }
  heads.forEach((th, c) => {
    const button = document.createElement("button");
    button.textContent = th.textContent;
    th.replaceChildren(button);
    if (numeric[c] && c > 0) th.classList.add("num");
    button.onclick = () => {
      down = by === c && !down;
      by = c;
      heads.forEach(h => h.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      choose();
    };
  });
  find.oninput = choose;
  back.onclick = () => { page--; draw(); };
  on.onclick = () => { page++; draw(); };
  box.querySelector(".tools").hidden = data.rows.length <= 8;
  draw();
}
