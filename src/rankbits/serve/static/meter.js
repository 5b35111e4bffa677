// A bar for a figure between 0 and 1 and the range that ties could have made of it.

import { el, formatFigure, svg } from "./dom.js";

// Whether the order of ties changes a digit that is shown.
export const tiesMatter = ({ worst, best }) => formatFigure(worst) !== formatFigure(best);

export const describeRange = (name, range) =>
  range.mean === null
    ? `${name} is undefined: nothing is relevant`
    : `${name} ${formatFigure(range.mean)}` +
      (tiesMatter(range) ? `, ties could make it ${formatFigure(range.worst)} to ${formatFigure(range.best)}` : "");

export function drawMeter(name, range) {
  const { mean, worst, best } = range;
  if (mean === null || mean === undefined) return el("span", { class: "caption" }, "undefined");
  const wide = Math.max(100 * (best - worst), 0.6);
  return svg(
    "svg",
    {
      class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none",
      role: "img", "aria-label": describeRange(name, range),
    },
    svg("rect", { class: "track", x: 0, y: 4, width: 100, height: 2 }),
    svg("rect", { class: "span", x: 100 * worst, y: 1.5, width: wide, height: 7 }),
    svg("line", {
      class: "mean", x1: 100 * mean, x2: 100 * mean, y1: 0, y2: 10,
      "vector-effect": "non-scaling-stroke",
    }),
  );
}

export function describeTies(range) {
  if (range.mean === null) return "nothing is relevant: undefined";
  if (!tiesMatter(range)) return "ties change no digit of it";
  return `ties could make it ${formatFigure(range.worst)} to ${formatFigure(range.best)}`;
}
