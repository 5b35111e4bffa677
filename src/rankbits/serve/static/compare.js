// Several codes of the same items, side by side, for one query.

import { distance, el, figure, many, whole } from "./dom.js";
import { itself, sameLabel, tally, tile } from "./bands.js";
import { listClass } from "./faces.js";
import { meter, tied } from "./meter.js";

const NAMES = {
  float: "float", sign: "sign", itq: "ITQ", h2q: "H2Q", supervised: "supervised",
  bits: "bits", asked: "bits, asked by floats",
};
const ABOUT = {
  float: "the embeddings themselves",
  sign: "signs of the embeddings",
  itq: "signs after the rotation of ITQ",
  h2q: "signs after the rotation of H2Q",
  supervised: "a rotation fitted to these labels",
  bits: "the codes that are searched here, by Hamming distance",
  asked: "the same codes; only the query keeps its floats",
};

const JUDGED = "The same items, ranked from the same query. A code is small when it costs few \
bytes an item, and good when its average precision is high whatever the order of its ties.";
const ASKED = "The same items, kept in several ways and ranked from the same query. What floats \
find is what codes of far fewer bytes try to keep.";

const weight = (method) =>
  (method.bits ? `${many(method.bits, "bit")}, ` : "") + `${many(method.bytes, "byte")} an item`;

// Float distances hardly ever tie: items without a tie flow together, each under its distance.
function runs({ bands, cut }) {
  const found = [];
  for (const [i, { distance: far, items }] of bands.entries()) {
    const count = items.length + (i === bands.length - 1 ? cut : 0);
    const band = { distance: far, items, count };
    const single = count === 1;
    const last = found[found.length - 1];
    if (single && last?.single) last.bands.push(band);
    else found.push({ single, bands: [band] });
  }
  return found;
}

function block(run, { query, state, cut }) {
  const tiles = run.bands.flatMap((band) =>
    band.items.map((item) =>
      el("li", {}, tile(item, {
        query, bits: null, far: band.distance, state,
        under: run.single ? distance(band.distance) : "",
      })),
    ),
  );
  const [band] = run.bands;
  if (cut > 0) tiles.push(el("li", { class: "beyond" }, el("span", { class: "more" }, `+${whole(cut)}`)));
  const ends = [band, run.bands[run.bands.length - 1]].map((end) => distance(end.distance));
  const head = run.single
    ? run.bands.length > 1 ? `distances ${ends.join(" to ")} · no ties` : `distance ${ends[0]} · no tie`
    : `distance ${distance(band.distance)} · ${tally(band, query)}`;
  return el(
    "div",
    { class: `run${cut > 0 ? " open" : ""}` },
    el("p", { class: "head" }, head),
    el("ul", { class: listClass(run.bands.flatMap((band) => band.items), "small") }, tiles),
  );
}

const idsOf = (method) => method.bands.flatMap((band) => band.items.map((item) => item.id));

function column(method, { query, state, best, floats }) {
  const title = NAMES[method.name] ?? method.name;
  const blocks = runs(method);
  const found = method.bands.flatMap((band) => band.items);
  const shown = found.filter((item) => !itself(item, query));
  const same = shown.filter((item) => sameLabel(item, query)).length;
  return el(
    "section",
    { class: "method", "aria-label": title, "data-method": method.name },
    el(
      "header",
      {},
      el("h3", {}, title, best ? el("span", { class: "chip" }, "highest") : null),
      el("p", { class: "about" }, ABOUT[method.name] ?? ""),
      el("p", { class: "weight" }, weight(method)),
      method.ap
        ? el(
            "div",
            {},
            el("p", { class: "reading" },
              el("span", { class: "about" }, "AP "),
              el("b", { class: "number" }, figure(method.ap.mean))),
            meter(`Average precision, ${title}`, method.ap),
            el("p", { class: "caption" },
              tied(method.ap) ? `${figure(method.ap.worst)} to ${figure(method.ap.best)} by ties` : "ties change no digit of it"),
          )
        : null,
      query.label === null || query.label === undefined
        ? null
        : el("p", { class: "caption" }, `${same} of ${shown.length} shown share its label`),
      floats && method.name !== "float"
        ? el("p", { class: "caption" },
          `${idsOf(method).filter((id) => floats.has(id)).length} of ${found.length} shown are \
among the ${floats.size} that floats find`)
        : null,
    ),
    blocks.map((run, i) =>
      block(run, { query, state, cut: i === blocks.length - 1 ? method.cut : 0 })),
  );
}

// On a narrow page the columns stand below each other: their figures first, in one look.
const glance = (judged) =>
  el(
    "ul",
    { class: "glance", "aria-label": "Average precision of this query by code" },
    judged.map((method) =>
      el(
        "li",
        {},
        el("span", {}, NAMES[method.name] ?? method.name),
        meter(`Average precision, ${NAMES[method.name] ?? method.name}`, method.ap),
        el("b", {}, figure(method.ap.mean)),
        el("span", { class: "weight" }, `${whole(method.bytes)} B`),
      )),
  );

export function compare(reply, { state, who }) {
  const judged = reply.methods.filter((method) => Number.isFinite(method.ap?.mean));
  const top = Math.max(...judged.map((method) => method.ap.mean));
  const floats = reply.methods.find((method) => method.name === "float");
  const ids = floats ? new Set(idsOf(floats)) : null;
  const label = reply.query.label;
  return {
    node: el(
      "div",
      {},
      el(
        "div",
        { class: "lead" },
        el("h2", {}, `${who.charAt(0).toUpperCase()}${who.slice(1)} ${judged.length ? "kept" : "asked"} in ${many(reply.methods.length, "way")}`),
        el("p", {}, judged.length ? JUDGED : ASKED),
      ),
      judged.length ? glance(judged) : null,
      el("div", { class: "methods" }, reply.methods.map((method) =>
        column(method, { query: reply.query, state, floats: ids,
          best: method.ap?.mean === top && judged.length > 1 }))),
    ),
    said: `${many(reply.methods.length, "way")} to keep ${who} compared` +
      (label === null ? "." : `: ${reply.methods.map((m) =>
        `${NAMES[m.name] ?? m.name} ${m.ap ? figure(m.ap.mean) : "undefined"}`).join(", ")}.`),
  };
}

