// The results of one query: the query on the left, the bands on the right.

import { el, formatFigure, formatCount } from "./dom.js";
import { announce, countShown, drawBands } from "./bands.js";
import { drawStrip } from "./bits.js";
import { sharpen, drawFace, isText, nameItem } from "./faces.js";
import { makeAddress } from "./state.js";
import { drawHistogram } from "./histogram.js";
import { drawMeter, describeTies } from "./meter.js";

export const previews = new Map(); // code -> object URL of the image that the user gave

export function nameQuery(state, item) {
  if (state.kind === "id") return item ? nameItem(item) : `item ${state.value}`;
  if (state.kind === "text") return `“${state.value}”`;
  return previews.has(state.value) ? "your image" : "this code";
}

function drawQuery(reply, state, item) {
  if (state.kind === "text" || isText(item)) return null; // the text itself is shown
  const preview = state.kind === "code" ? previews.get(state.value) : null;
  if (preview) {
    const image = el("img", { class: "face", src: preview, alt: "The image you gave" });
    image.addEventListener("load", () => sharpen(image));
    return image;
  }
  const shown = item ?? { id: "", code: reply.query.code };
  const alt = item ? `The query: ${nameItem(item)}` : "The query's code as a picture";
  return drawFace({ ...shown, code: reply.query.code }, { bits: reply.bits, alt, big: true });
}

const drawCard = (title, ...rest) =>
  el("section", { class: "card" }, el("h3", {}, title), ...rest);

function drawPrecision(ap) {
  return drawCard(
    "Average precision of this query",
    el(
      "p",
      { class: "reading" },
      el("b", { class: "number" }, formatFigure(ap.mean)),
      el("span", {}, describeTies(ap)),
    ),
    drawMeter("Average precision", ap),
    el("p", { class: "ends", "aria-hidden": "true" }, el("span", {}, "0"), el("span", {}, "1")),
  );
}

const TIE = "Items in one band are equally far from the query: their codes do not say which is \
nearer. Inside a band they are in the order in which they were added.";

const linkToFloats = (state) =>
  el("p", {}, el("a", { class: "floats", href: makeAddress({ ...state, view: "compare" }) },
    "What would floats have found?"));

export function drawResults(reply, { state, item, limit, compares = false }) {
  const wide = reply.bands.some((band) => band.items.some(isText));
  const code = drawStrip(reply.query.code, reply.bits, wide);
  const spread = reply.histogram ? drawHistogram(reply) : null;
  const look = (result, far) => {
    code.compareWith(result);
    spread?.markDistance(far);
  };
  const rest = () => {
    code.showQuery();
    spread?.markDistance(null);
  };
  const label = reply.query.label;
  const who = nameQuery(state, item);
  const shown = countShown(reply);
  const side = el(
    "aside",
    { class: "side", "aria-label": "The query" },
    el(
      "div",
      { class: "query" },
      drawQuery(reply, state, item),
      el(
        "div",
        {},
        el("p", { class: "eyebrow" }, "Nearest to"),
        el("h2", { id: "asked" }, who.charAt(0).toUpperCase() + who.slice(1)),
        isText(item) ? el("p", { class: "whole", tabindex: "0" }, item.text) : null,
        label === null || label === undefined ? null : el("p", { class: "chip" }, `label ${label}`),
        compares && (state.kind === "text" || isText(item)) ? linkToFloats(state) : null,
      ),
    ),
    reply.ap ? drawPrecision(reply.ap) : null,
    drawCard(`Its code, ${formatCount(reply.bits, "bit")}`, code.node),
    spread && drawCard("Distances of the whole database", spread.node),
  );
  const main = el(
    "div",
    { class: "found", "data-results": shown },
    shown
      ? el("p", { class: "note" }, TIE)
      : el("p", { class: "note" }, "Nothing was found: the database has no other item."),
    drawBands(reply, { state, look, rest, limit }),
    el("p", { class: "took" }, `${formatCount(shown, "result")} in ${reply.took_ms.toFixed(1)} ms`),
  );
  return { node: el("div", { class: "split" }, side, main), said: announce(reply, who) };
}
