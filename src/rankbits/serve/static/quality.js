// The report: each figure with the range that ties could have made of it.

import { el, formatFigure, formatCount } from "./dom.js";
import { drawMeter, describeTies, describeRange, tiesMatter } from "./meter.js";

function drawRow([name, range], index) {
  const note = `definition-${index}`;
  return el(
    "tr",
    { "data-figure": name },
    el(
      "th",
      { scope: "row" },
      el("button", { type: "button", class: "term", "aria-describedby": note }, name),
    ),
    el("td", { class: "number" }, formatFigure(range.mean)),
    el("td", { class: "bar" }, drawMeter(name, range)),
    el("td", { class: "range" },
      range.mean !== null && tiesMatter(range) ? `${formatFigure(range.worst)} to ${formatFigure(range.best)}` : "the same"),
    el("td", { class: "definition", id: note }, range.definition),
  );
}

function drawHeadline([name, range]) {
  return el(
    "section",
    { class: "headline", "aria-label": name },
    el("p", { class: "eyebrow" }, name),
    el("p", { class: "huge number" }, formatFigure(range.mean)),
    el("div", {},
      el("p", {}, range.definition.charAt(0).toUpperCase() + range.definition.slice(1) + "."),
      drawMeter(name, range),
      el("p", { class: "caption" }, describeTies(range))),
  );
}

export function drawReport(report) {
  const figures = Object.entries(report.figures);
  const size = [formatCount(report.queries, "query", "queries"), formatCount(report.database, "database item")];
  if (report.bits) size.push(formatCount(report.bits, "bit"));
  const remarks = [...report.notes];
  if (report.without_relevant) {
    remarks.unshift(`${formatCount(report.without_relevant, "query has", "queries have")} nothing relevant \
in the database, and every mean leaves them out.`);
  }
  return {
    node: el(
      "div",
      { class: "quality" },
      el("div", { class: "lead" },
        el("h2", {}, "How good the ranking is"),
        el("p", {}, `${size.join(" · ")}. ${report.protocol}`)),
      figures.length ? drawHeadline(figures[0]) : null,
      el(
        "table",
        { class: "figures" },
        el("caption", { class: "unseen" }, "Figures of the report, with the range that ties leave open"),
        el("thead", {}, el("tr", {},
          el("th", { scope: "col" }, "figure"),
          el("th", { scope: "col" }, "mean"),
          el("th", { scope: "col", class: "bar" }, "0 to 1"),
          el("th", { scope: "col" }, "by ties"),
          el("th", { scope: "col", class: "definition" }, "definition"))),
        el("tbody", {}, figures.slice(1).map(drawRow)),
      ),
      remarks.map((remark) => el("p", { class: "note" }, remark)),
    ),
    said: figures.length ? `Report: ${describeRange(...figures[0])}.` : "The report is empty.",
  };
}
