// How far the whole database lies from the query: neighbours above the line, others below.

import { el, many, svg, whole } from "./dom.js";

const WIDE = 340;
const HIGH = 132;
const FOOT = 20;
const HEAD = 16;

function step(most) {
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => most / s <= 9) ?? 2000;
}

export function sentence({ histogram, query }, far) {
  const all = histogram.all[far] ?? 0;
  if (far === 0 && all === 1 && query.id !== null) return "distance 0: the query itself";
  const text = `distance ${far}: ${many(all, "item")}`;
  if (!histogram.relevant || !all) return text;
  return `${text}, ${whole(histogram.relevant[far])} with the query's label`;
}

export function histogram(reply) {
  const { all, relevant } = reply.histogram;
  const most = all.reduce((end, n, d) => (n ? d : end), 0);
  const column = WIDE / (most + 1);
  const bar = Math.max(column * 0.78, column - 3);
  const others = relevant ? all.map((n, d) => n - relevant[d]) : null;
  // a square root keeps the few near items visible beside the many far ones
  const root = (n) => Math.sqrt(Math.max(n, 0));
  const up = root(Math.max(...(relevant ?? all), 1));
  const down = others ? root(Math.max(...others, 1)) : 0;
  const unit = HIGH / (up + down);
  const line = HEAD + up * unit;

  const pillars = (counts, kind, sign) =>
    svg(
      "g",
      { class: kind },
      counts.slice(0, most + 1).map((n, d) => {
        if (!n) return null;
        const height = Math.max(root(n) * unit - 0.5, 1);
        const y = sign > 0 ? line - 0.5 - height : line + 0.5;
        return svg("rect", { x: d * column + (column - bar) / 2, y, width: bar, height });
      }),
    );

  const cursor = svg("rect", { class: "cursor", y: HEAD, width: column, height: HIGH });
  cursor.setAttribute("visibility", "hidden");
  const ticks = [];
  for (let d = 0; d <= most; d += step(most)) {
    const x = (d + 0.5) * column;
    ticks.push(svg("text", { x, y: HEAD + HIGH + 15, class: "tick" }, String(d)));
  }

  const end = reply.bands[reply.bands.length - 1];
  const cut = end ? cutLine(reply, end, column) : [];
  const box = svg(
    "svg",
    { class: "histogram", viewBox: `0 0 ${WIDE} ${HEAD + HIGH + FOOT}`, role: "img" },
    cursor,
    pillars(relevant ?? all, relevant ? "near" : "plain", 1),
    others ? pillars(others, "others", -1) : null,
    svg("line", { class: "base", x1: 0, x2: WIDE, y1: line, y2: line }),
    cut,
    ticks,
  );
  const resting = relevant
    ? "Heights are square roots, so that the few near items show."
    : "Items of the database by distance; heights are square roots.";
  const caption = el("p", { class: "caption" }, resting);
  box.setAttribute("aria-label", summary(reply, most));

  function at(far) {
    if (far === null || far < 0 || far > most) {
      cursor.setAttribute("visibility", "hidden");
      caption.textContent = resting;
      return;
    }
    cursor.setAttribute("x", far * column);
    cursor.setAttribute("visibility", "visible");
    caption.textContent = sentence(reply, far);
  }

  box.addEventListener("pointermove", (event) => {
    const { left, width } = box.getBoundingClientRect();
    at(Math.floor(((event.clientX - left) / width) * (most + 1)));
  });
  box.addEventListener("pointerleave", () => at(null));
  return {
    node: el("div", {}, relevant ? key() : null, box, caption, table(reply.histogram, most)),
    at,
  };
}

// Where the top k ends; inside a tie it stands inside the column.
function cutLine(reply, end, column) {
  const inside = end.items.length / (end.count ?? end.items.length);
  const x = (end.distance + Math.min(inside, 1)) * column;
  const right = x < WIDE * 0.6;
  return [
    svg("line", { class: "cut", x1: x, x2: x, y1: 3, y2: HEAD + HIGH }),
    svg(
      "text",
      { class: "cut-label", x: right ? x + 5 : x - 5, y: 10, "text-anchor": right ? "start" : "end" },
      `top ${whole(reply.k)} ends`,
    ),
  ];
}

const key = () =>
  el(
    "p",
    { class: "key" },
    el("span", { class: "near" }, "same label, above"),
    el("span", { class: "others" }, "others, below"),
  );

function summary(reply, most) {
  const total = reply.histogram.all.reduce((sum, n) => sum + n, 0);
  const known = reply.histogram.relevant
    ? `, ${whole(reply.histogram.relevant.reduce((sum, n) => sum + n, 0))} with the query's label`
    : "";
  return `Distances of ${many(total, "item")} from the query, 0 to ${most}${known}.`;
}

// The same numbers for those who read rather than look.
function table(counts, most) {
  const rows = counts.all.slice(0, most + 1).map((n, d) =>
    n
      ? el(
          "tr",
          {},
          el("th", { scope: "row" }, String(d)),
          el("td", {}, whole(n)),
          counts.relevant ? el("td", {}, whole(counts.relevant[d])) : null,
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
