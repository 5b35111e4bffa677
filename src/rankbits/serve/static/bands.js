// Results in bands of equal distance, which show ties.

import { formatDistance, el, formatCount, formatWhole } from "./dom.js";
import { drawTrace } from "./bits.js";
import { drawFace, isText, chooseListClass, nameItem, drawPassage, chooseCaption, hasTitle } from "./faces.js";
import { makeAddress } from "./state.js";

// A query by id is in the database too, at distance 0; it is not a neighbour of itself.
export const isQuery = (item, query) => query.id !== null && item.id === query.id;

const holdsQuery = (band, query) => Number(band.distance === 0 && query.id !== null);

// The size of a band for its header; count is that of the whole database, null if nothing counts.
export function describeSize(band, query) {
  const { count, items } = band;
  if (count === null || count === undefined) return `${formatCount(items.length, "item")} shown`;
  const withQuery = holdsQuery(band, query);
  if (count === 1) return withQuery ? "the query itself" : "1 item, no tie";
  const shown = items.length < count ? `, ${formatWhole(items.length)} shown` : "";
  return `${formatCount(count, "item")} tied${shown}${withQuery ? ", the query among them" : ""}`;
}

const splitLabels = (item) => (item.label ?? "").split("|").filter(Boolean);

// An item with several labels has "cat|outdoors"; one label in common is enough.
export function sharesLabel(item, query) {
  const labels = new Set(splitLabels(query));
  return !isQuery(item, query) && splitLabels(item).some((label) => labels.has(label));
}

export function describeItem(item, query, far) {
  const parts = [nameItem(item)];
  if (hasTitle(item)) parts.push(`id ${item.id}`);
  if (isQuery(item, query)) parts.push("the query itself");
  if (item.label) parts.push(`label ${item.label}${sharesLabel(item, query) ? ", as the query" : ""}`);
  parts.push(`distance ${formatDistance(far)}`);
  return parts.join(", ");
}

export function drawTile(item, { query, bits, far, state, look = null, rest = null, under = null }) {
  const kind = isQuery(item, query) ? " itself" : sharesLabel(item, query) ? " same" : "";
  return el(
    "a",
    {
      class: `tile${kind}${isText(item) ? " prose" : ""}`,
      href: makeAddress({ ...state, kind: "id", value: item.id }),
      "data-tile": item.id,
      "data-distance": far,
      draggable: "false",
      title: nameItem(item),
      onpointerenter: look && (() => look(item, far)),
      onpointerleave: rest,
      onfocus: look && (() => look(item, far)),
      onblur: rest,
    },
    isText(item) ? drawPassage(item) : drawFace(item, { bits, alt: describeItem(item, query, far) }),
    el(
      "span",
      { class: "under", "aria-hidden": "true" },
      item.label ? el("span", { class: "label" }, item.label) : null,
      el("span", { class: "id" }, under ?? (isText(item) ? item.id : chooseCaption(item))),
    ),
    bits ? drawTrace(query.code, item.code, bits, isText(item)) : null,
  );
}

function drawBand(band, index, { reply, last, state, look, rest, limit }) {
  const { query, bits, histogram } = reply;
  const cut = last ? (reply.cut ?? 0) : 0;
  const title = `band-${index}`;
  const relevant = histogram?.relevant?.[band.distance];
  const sharing = relevant === undefined ? null : relevant - holdsQuery(band, query);
  const alone = band.count === 1 && holdsQuery(band, query);
  const tiles = band.items.map((item) =>
    el("li", {}, drawTile(item, { query, bits, far: band.distance, state, look, rest })),
  );
  if (cut > 0) tiles.push(el("li", { class: "beyond" }, drawMore(cut, reply, state, limit)));
  return el(
    "section",
    { class: `band${cut > 0 ? " open" : ""}`, "aria-labelledby": title, "data-band": band.distance },
    el(
      "header",
      {},
      el(
        "h3",
        { id: title },
        el("span", { class: "word" }, "distance "),
        el("span", { class: "far" }, formatDistance(band.distance)),
        el("span", { class: "unseen" }, " · "),
        el("span", { class: "tally" }, describeSize(band, query)),
      ),
      sharing === null || alone
        ? null
        : el("p", { class: "sharing" }, `${formatWhole(sharing)} share${sharing === 1 ? "s" : ""} its label`),
    ),
    el("ul", { class: chooseListClass(band.items) }, tiles),
  );
}

export const countShown = (reply) => reply.bands.reduce((sum, band) => sum + band.items.length, 0);

// The top k ends inside a tie: the items that are not shown are as near as those that are.
function drawMore(cut, reply, state, limit) {
  const shown = countShown(reply);
  const words = [
    el("b", {}, `+${formatWhole(cut)} `),
    el("span", {}, "just as near"),
  ];
  if (shown + cut > limit) return el("span", { class: "more" }, words);
  const href = makeAddress({ ...state, k: shown + cut });
  return el("a", { class: "more", href }, words, el("span", { class: "unseen" }, ": show them too"));
}

export function drawBands(reply, { state, look, rest, limit }) {
  const last = reply.bands.length - 1;
  return reply.bands.map((band, index) =>
    drawBand(band, index, { reply, last: index === last, state, look, rest, limit }),
  );
}

export function announce(reply, subject) {
  const shown = countShown(reply);
  if (!shown) return `No results for ${subject}.`;
  const end = reply.bands[reply.bands.length - 1];
  const parts = [
    `${formatCount(shown, "result")} for ${subject}`,
    `nearest at distance ${formatDistance(reply.bands[0].distance)}`,
    formatCount(reply.bands.length, "band"),
  ];
  if (reply.cut > 0) {
    parts.push(`the last, at distance ${formatDistance(end.distance)}, goes on: ${describeSize(end, reply.query)}`);
  }
  return `${parts.join(", ")}.`;
}
