// The histogram of distances from the query to the whole database: items with the query's label
// above the line, others below.

import { el, formatCount, svg, formatWhole } from "./dom.js";

const WIDE = 340;
const HIGH = 132;
const FOOT = 20;
const HEAD = 16;

function chooseStep(most) {
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => most / s <= 9) ?? 2000;
}

export function describeDistance({ histogram, query }, far) {
  const all = histogram.all[far] ?? 0;
  if (far === 0 && all === 1 && query.id !== null) return "distance 0: the query itself";
  const text = `distance ${far}: ${formatCount(all, "item")}`;
  if (!histogram.relevant || !all) return text;
  return `${text}, ${formatWhole(histogram.relevant[far])} with the query's label`;
}

export function drawHistogram(reply) {
  const { all, relevant } = reply.histogram;
  const most = all.reduce((end, n, d) => (n ? d : end), 0);
  const column = WIDE / (most + 1);
  const bar = Math.max(column * 0.78, column - 3);
  const others = relevant ? all.map((n, d) => n - relevant[d]) : null;
  // a square root keeps the few near items visible beside the many far ones
  const takeRoot = (n) => Math.sqrt(Math.max(n, 0));
  const up = takeRoot(Math.max(...(relevant ?? all), 1));
  const down = others ? takeRoot(Math.max(...others, 1)) : 0;
  const unit = HIGH / (up + down);
  const line = HEAD + up * unit;

  const drawBars = (counts, kind, sign) =>
    svg(
      "g",
      { class: kind },
      counts.slice(0, most + 1).map((n, d) => {
        if (!n) return null;
        const height = Math.max(takeRoot(n) * unit - 0.5, 1);
        const y = sign > 0 ? line - 0.5 - height : line + 0.5;
        return svg("rect", { x: d * column + (column - bar) / 2, y, width: bar, height });
      }),
    );

  const cursor = svg("rect", { class: "cursor", y: HEAD, width: column, height: HIGH });
  cursor.setAttribute("visibility", "hidden");
  const ticks = [];
  for (let d = 0; d <= most; d += chooseStep(most)) {
    const x = (d + 0.5) * column;
    ticks.push(svg("text", { x, y: HEAD + HIGH + 15, class: "tick" }, String(d)));
  }

  const end = reply.bands[reply.bands.length - 1];
  const cut = end ? drawCut(reply, end, column) : [];
  const box = svg(
    "svg",
    { class: "histogram", viewBox: `0 0 ${WIDE} ${HEAD + HIGH + FOOT}`, role: "img" },
    cursor,
    drawBars(relevant ?? all, relevant ? "near" : "plain", 1),
    others ? drawBars(others, "others", -1) : null,
    svg("line", { class: "base", x1: 0, x2: WIDE, y1: line, y2: line }),
    cut,
    ticks,
  );
  const resting = relevant
    ? "Heights are square roots of counts, so that few near items show."
    : "Items of the database by distance; heights are square roots of counts.";
  const caption = el("p", { class: "caption" }, resting);
  box.setAttribute("aria-label", summarize(reply, most));

  function markDistance(far) {
    if (far === null || far < 0 || far > most) {
      cursor.setAttribute("visibility", "hidden");
      caption.textContent = resting;
      return;
    }
    cursor.setAttribute("x", far * column);
    cursor.setAttribute("visibility", "visible");
    caption.textContent = describeDistance(reply, far);
  }

  box.addEventListener("pointermove", (event) => {
    const { left, width } = box.getBoundingClientRect();
    markDistance(Math.floor(((event.clientX - left) / width) * (most + 1)));
  });
  box.addEventListener("pointerleave", () => markDistance(null));
  return {
    node: el("div", {}, relevant ? drawKey() : null, box, caption, drawTable(reply.histogram, most)),
    markDistance,
  };
}

// A line where the top k ends; where that is inside a tie, the line is inside the column.
function drawCut(reply, end, column) {
  const inside = end.items.length / (end.count ?? end.items.length);
  const x = (end.distance + Math.min(inside, 1)) * column;
  const right = x < WIDE * 0.6;
  return [
    svg("line", { class: "cut", x1: x, x2: x, y1: 3, y2: HEAD + HIGH }),
    svg(
      "text",
      { class: "cut-label", x: right ? x + 5 : x - 5, y: 10, "text-anchor": right ? "start" : "end" },
      `top ${formatWhole(reply.k)} ends`,
    ),
  ];
}

const drawKey = () =>
  el(
    "p",
    { class: "key" },
    el("span", { class: "near" }, "same label, above"),
    el("span", { class: "others" }, "others, below"),
  );

function summarize(reply, most) {
  const total = reply.histogram.all.reduce((sum, n) => sum + n, 0);
  const known = reply.histogram.relevant
    ? `, ${formatWhole(reply.histogram.relevant.reduce((sum, n) => sum + n, 0))} with the query's label`
    : "";
  return `Distances of ${formatCount(total, "item")} from the query, 0 to ${most}${known}.`;
}

// The same numbers as a table, for screen readers and for exact values.
function drawTable(counts, most) {
  const rows = counts.all.slice(0, most + 1).map((n, d) =>
    n
      ? el(
          "tr",
          {},
          el("th", { scope: "row" }, String(d)),
          el("td", {}, formatWhole(n)),
          counts.relevant ? el("td", {}, formatWhole(counts.relevant[d])) : null,
        )
      : null,
  );
  return el(
    "details",
    { class: "numbers" },
    el("summary", {}, "As a table"),
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "distance"),
          el("th", { scope: "col" }, "items"),
          counts.relevant ? el("th", { scope: "col" }, "same label") : null,
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}
