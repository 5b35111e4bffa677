// The run's report: each figure beside the range that ties could have made of it.

import { el, figure, many } from "./dom.js";
import { meter, reading, spoken, tied } from "./meter.js";

function row([name, range], index) {
  const note = `definition-${index}`;
  return el(
    "tr",
    { "data-figure": name },
    el(
      "th",
      { scope: "row" },
      el("button", { type: "button", class: "term", "aria-describedby": note }, name),
    ),
    el("td", { class: "number" }, figure(range.mean)),
    el("td", { class: "bar" }, meter(name, range)),
    el("td", { class: "range" },
      range.mean !== null && tied(range) ? `${figure(range.worst)} to ${figure(range.best)}` : "the same"),
    el("td", { class: "definition", id: note }, range.definition),
  );
}

function headline([name, range]) {
  return el(
    "section",
    { class: "headline", "aria-label": name },
    el("p", { class: "eyebrow" }, name),
    el("p", { class: "huge number" }, figure(range.mean)),
    el("div", {},
      el("p", {}, range.definition.charAt(0).toUpperCase() + range.definition.slice(1) + "."),
      meter(name, range),
      el("p", { class: "caption" }, reading(range))),
  );
}

export function quality(report) {
  const figures = Object.entries(report.figures);
  const size = [many(report.queries, "query", "queries"), many(report.database, "database item")];
  if (report.bits) size.push(many(report.bits, "bit"));
  const remarks = [...report.notes];
  if (report.without_relevant) {
    remarks.unshift(`${many(report.without_relevant, "query has", "queries have")} nothing relevant \
in the database: undefined, and left out of every mean.`);
  }
  return {
    node: el(
      "div",
      { class: "quality" },
      el("div", { class: "lead" },
        el("h2", {}, "How good the ranking is"),
        el("p", {}, `${size.join(" · ")}. ${report.protocol}`)),
      figures.length ? headline(figures[0]) : null,
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
        el("tbody", {}, figures.slice(1).map(row)),
      ),
      remarks.map((remark) => el("p", { class: "note" }, remark)),
    ),
    said: figures.length ? `Report: ${spoken(...figures[0])}.` : "The report is empty.",
  };
}
