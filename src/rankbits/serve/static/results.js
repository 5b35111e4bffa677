// What one query found: the query itself on one side, the bands on the other.

import { el, figure, many } from "./dom.js";
import { announced, bands } from "./bands.js";
import { strip } from "./bits.js";
import { crisp, face, isText, name } from "./faces.js";
import { address } from "./state.js";
import { histogram } from "./histogram.js";
import { meter, reading } from "./meter.js";

export const previews = new Map(); // code -> address of the picture that was dropped here

export function subject(state, item) {
  if (state.kind === "id") return item ? name(item) : `item ${state.value}`;
  if (state.kind === "text") return `“${state.value}”`;
  return previews.has(state.value) ? "your image" : "this code";
}

function portrait(reply, state, item) {
  if (state.kind === "text" || isText(item)) return null; // words are their own picture
  const preview = state.kind === "code" ? previews.get(state.value) : null;
  if (preview) {
    const image = el("img", { class: "face", src: preview, alt: "The image you gave" });
    image.addEventListener("load", () => crisp(image));
    return image;
  }
  const shown = item ?? { id: "", code: reply.query.code };
  const alt = item ? `The query: ${name(item)}` : "The query's code as a picture";
  return face({ ...shown, code: reply.query.code }, { bits: reply.bits, alt, big: true });
}

const card = (title, ...rest) =>
  el("section", { class: "card" }, el("h3", {}, title), ...rest);

function precision(ap) {
  return card(
    "Average precision of this query",
    el(
      "p",
      { class: "reading" },
      el("b", { class: "number" }, figure(ap.mean)),
      el("span", {}, reading(ap)),
    ),
    meter("Average precision", ap),
    el("p", { class: "ends", "aria-hidden": "true" }, el("span", {}, "0"), el("span", {}, "1")),
  );
}

const TIE = "Items in one band are equally far from the query: their codes cannot put one before \
the other. Inside a band they stand in order of insertion, which says nothing.";

const toFloats = (state) =>
  el("p", {}, el("a", { class: "floats", href: address({ ...state, view: "compare" }) },
    "What would floats have found?"));

export function results(reply, { state, item, limit, compares = false }) {
  const wide = reply.bands.some((band) => band.items.some(isText));
  const code = strip(reply.query.code, reply.bits, wide);
  const spread = reply.histogram ? histogram(reply) : null;
  const look = (found, far) => {
    code.against(found);
    spread?.at(far);
  };
  const rest = () => {
    code.rest();
    spread?.at(null);
  };
  const label = reply.query.label;
  const who = subject(state, item);
  const shown = reply.bands.reduce((sum, band) => sum + band.items.length, 0);
  const side = el(
    "aside",
    { class: "side", "aria-label": "The query" },
    el(
      "div",
      { class: "query" },
      portrait(reply, state, item),
      el(
        "div",
        {},
        el("p", { class: "eyebrow" }, "Nearest to"),
        el("h2", { id: "asked" }, who.charAt(0).toUpperCase() + who.slice(1)),
        isText(item) ? el("p", { class: "whole", tabindex: "0" }, item.text) : null,
        label === null || label === undefined ? null : el("p", { class: "chip" }, `label ${label}`),
        compares && (state.kind === "text" || isText(item)) ? toFloats(state) : null,
      ),
    ),
    reply.ap ? precision(reply.ap) : null,
    card(`Its code, ${many(reply.bits, "bit")}`, code.node),
    spread && card("Distances of the whole database", spread.node),
  );
  const main = el(
    "div",
    { class: "found", "data-results": shown },
    shown
      ? el("p", { class: "note" }, TIE)
      : el("p", { class: "note" }, "Nothing was found: the database holds no other item."),
    bands(reply, { state, look, rest, limit }),
    el("p", { class: "took" }, `${many(shown, "result")} in ${reply.took_ms.toFixed(1)} ms`),
  );
  return { node: el("div", { class: "split" }, side, main), said: announced(reply, who) };
}
