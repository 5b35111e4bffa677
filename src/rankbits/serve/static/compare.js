// Several codes of the same items, side by side, for one query.

import { formatDistance, el, formatFigure, formatCount, formatWhole } from "./dom.js";
import { isQuery, sharesLabel, describeSize, drawTile } from "./bands.js";
import { chooseListClass } from "./faces.js";
import { drawMeter, tiesMatter } from "./meter.js";

const NAMES = {
  float: "float", sign: "sign", itq: "ITQ", h2q: "H2Q", supervised: "supervised",
  bits: "bits", asked: "bits, searched by floats",
};
const ABOUT = {
  float: "the embeddings themselves",
  sign: "signs of the embeddings",
  itq: "signs after the rotation of ITQ",
  h2q: "signs after the rotation of H2Q",
  supervised: "a rotation fitted to these labels",
  bits: "the codes that are searched here, by Hamming distance",
  asked: "the same codes, but the query keeps its floats",
};

const JUDGED = "The same items, ranked for the same query. A good code needs few bytes an item, and \
its average precision is high in every order of its ties.";
const ASKED = "The same items, stored in several ways and ranked for the same query. Codes try to \
find what floats find, with far fewer bytes.";

const describeCost = (method) =>
  (method.bits ? `${formatCount(method.bits, "bit")}, ` : "") + `${formatCount(method.bytes, "byte")} an item`;

// Float distances hardly ever tie: items without a tie form one run, each under its distance.
function groupRuns({ bands, cut }) {
  const runs = [];
  for (const [i, { distance: far, items }] of bands.entries()) {
    const count = items.length + (i === bands.length - 1 ? cut : 0);
    const band = { distance: far, items, count };
    const single = count === 1;
    const last = runs[runs.length - 1];
    if (single && last?.single) last.bands.push(band);
    else runs.push({ single, bands: [band] });
  }
  return runs;
}

function drawRun(run, { query, state, cut }) {
  const tiles = run.bands.flatMap((band) =>
    band.items.map((item) =>
      el("li", {}, drawTile(item, {
        query, bits: null, far: band.distance, state,
        under: run.single ? formatDistance(band.distance) : "",
      })),
    ),
  );
  const [band] = run.bands;
  if (cut > 0) tiles.push(el("li", { class: "beyond" }, el("span", { class: "more" }, `+${formatWhole(cut)}`)));
  const ends = [band, run.bands[run.bands.length - 1]].map((end) => formatDistance(end.distance));
  const head = run.single
    ? run.bands.length > 1 ? `distances ${ends.join(" to ")} · no ties` : `distance ${ends[0]} · no tie`
    : `distance ${formatDistance(band.distance)} · ${describeSize(band, query)}`;
  return el(
    "div",
    { class: `run${cut > 0 ? " open" : ""}` },
    el("p", { class: "head" }, head),
    el("ul", { class: chooseListClass(run.bands.flatMap((band) => band.items), "small") }, tiles),
  );
}

const listIds = (method) => method.bands.flatMap((band) => band.items.map((item) => item.id));

function drawMethod(method, { query, state, best, floats }) {
  const title = NAMES[method.name] ?? method.name;
  const blocks = groupRuns(method);
  const items = method.bands.flatMap((band) => band.items);
  const shown = items.filter((item) => !isQuery(item, query));
  const same = shown.filter((item) => sharesLabel(item, query)).length;
  return el(
    "section",
    { class: "method", "aria-label": title, "data-method": method.name },
    el(
      "header",
      {},
      el("h3", {}, title, best ? el("span", { class: "chip" }, "highest") : null),
      el("p", { class: "about" }, ABOUT[method.name] ?? ""),
      el("p", { class: "weight" }, describeCost(method)),
      method.ap
        ? el(
            "div",
            {},
            el("p", { class: "reading" },
              el("span", { class: "about" }, "AP "),
              el("b", { class: "number" }, formatFigure(method.ap.mean))),
            drawMeter(`Average precision, ${title}`, method.ap),
            el("p", { class: "caption" },
              tiesMatter(method.ap) ? `${formatFigure(method.ap.worst)} to ${formatFigure(method.ap.best)} by ties` : "ties change no digit of it"),
          )
        : null,
      query.label === null || query.label === undefined
        ? null
        : el("p", { class: "caption" }, `${same} of ${shown.length} shown share its label`),
      floats && method.name !== "float"
        ? el("p", { class: "caption" },
          `${listIds(method).filter((id) => floats.has(id)).length} of ${items.length} shown are \
among the ${floats.size} that floats find`)
        : null,
    ),
    blocks.map((run, i) =>
      drawRun(run, { query, state, cut: i === blocks.length - 1 ? method.cut : 0 })),
  );
}

// On a narrow page the columns are below each other, so their figures come first, together.
const drawSummary = (judged) =>
  el(
    "ul",
    { class: "glance", "aria-label": "Average precision of this query by code" },
    judged.map((method) =>
      el(
        "li",
        {},
        el("span", {}, NAMES[method.name] ?? method.name),
        drawMeter(`Average precision, ${NAMES[method.name] ?? method.name}`, method.ap),
        el("b", {}, formatFigure(method.ap.mean)),
        el("span", { class: "weight" }, `${formatWhole(method.bytes)} B`),
      )),
  );

export function drawComparison(reply, { state, who }) {
  const judged = reply.methods.filter((method) => Number.isFinite(method.ap?.mean));
  const top = Math.max(...judged.map((method) => method.ap.mean));
  const floats = reply.methods.find((method) => method.name === "float");
  const ids = floats ? new Set(listIds(floats)) : null;
  const label = reply.query.label;
  return {
    node: el(
      "div",
      {},
      el(
        "div",
        { class: "lead" },
        el("h2", {}, `${who.charAt(0).toUpperCase()}${who.slice(1)} ${judged.length ? "stored" : "searched"} in ${formatCount(reply.methods.length, "way")}`),
        el("p", {}, judged.length ? JUDGED : ASKED),
      ),
      judged.length ? drawSummary(judged) : null,
      el("div", { class: "methods" }, reply.methods.map((method) =>
        drawMethod(method, { query: reply.query, state, floats: ids,
          best: method.ap?.mean === top && judged.length > 1 }))),
    ),
    said: `${formatCount(reply.methods.length, "way")} to store ${who} compared` +
      (label === null ? "." : `: ${reply.methods.map((m) =>
        `${NAMES[m.name] ?? m.name} ${m.ap ? formatFigure(m.ap.mean) : "undefined"}`).join(", ")}.`),
  };
}

