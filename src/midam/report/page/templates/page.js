// The page reads without this: a click on a head sorts its table, and paper shows what is folded.
for (const head of document.querySelectorAll("table.sorts thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const table = head.closest("table"), body = table.tBodies[0], at = head.cellIndex;
    const up = head.getAttribute("aria-sort") !== "ascending";
    const key = (row) => {
      const cell = row.cells[at], found = cell.querySelector("data");
      return found ? Number(found.value) : cell.textContent.trim();
    };
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return up ? order : -order;
    });
    for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
  });
}
const closed = [];
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) { part.open = true; closed.push(part); }
});
addEventListener("afterprint", () => { while (closed.length) closed.pop().open = false; });
