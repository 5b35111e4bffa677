// A figure between 0 and 1 with the range that ties leave open.

import { el, figure, svg } from "./dom.js";

// whether the order of ties changes a digit that is shown
export const tied = ({ worst, best }) => figure(worst) !== figure(best);

export const spoken = (name, range) =>
  range.mean === null
    ? `${name} is undefined: nothing is relevant`
    : `${name} ${figure(range.mean)}` +
      (tied(range) ? `, ties could make it ${figure(range.worst)} to ${figure(range.best)}` : "");

export function meter(name, range) {
  const { mean, worst, best } = range;
  if (mean === null || mean === undefined) return el("span", { class: "caption" }, "undefined");
  const wide = Math.max(100 * (best - worst), 0.6);
  return svg(
    "svg",
    {
      class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none",
      role: "img", "aria-label": spoken(name, range),
    },
    svg("rect", { class: "track", x: 0, y: 4, width: 100, height: 2 }),
    svg("rect", { class: "span", x: 100 * worst, y: 1.5, width: wide, height: 7 }),
    svg("line", {
      class: "mean", x1: 100 * mean, x2: 100 * mean, y1: 0, y2: 10,
      "vector-effect": "non-scaling-stroke",
    }),
  );
}

export function reading(range) {
  if (range.mean === null) return "nothing is relevant: undefined";
  if (!tied(range)) return "ties change no digit of it";
  return `ties could make it ${figure(range.worst)} to ${figure(range.best)}`;
}
