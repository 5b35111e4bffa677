// Results in bands of equal distance, so that a tie is seen as what it is.

import { distance, el, many, whole } from "./dom.js";
import { trace } from "./bits.js";
import { face, isText, listClass, name, passage, short, titled } from "./faces.js";
import { address } from "./state.js";

// A query by id stands in the database too: it is there at distance 0, and no neighbour.
export const itself = (item, query) => query.id !== null && item.id === query.id;

const holdsQuery = (band, query) => Number(band.distance === 0 && query.id !== null);

// What a band's header says of its size; count is of the whole database, null where nobody counts.
export function tally(band, query) {
  const { count, items } = band;
  if (count === null || count === undefined) return `${many(items.length, "item")} shown`;
  const own = holdsQuery(band, query);
  if (count === 1) return own ? "the query itself" : "1 item, no tie";
  const shown = items.length < count ? `, ${whole(items.length)} shown` : "";
  return `${many(count, "item")} tied${shown}${own ? ", the query among them" : ""}`;
}

const labels = (item) => (item.label ?? "").split("|").filter(Boolean);

// an item of several labels comes as "cat|outdoors": one in common is enough
export function sameLabel(item, query) {
  const own = new Set(labels(query));
  return !itself(item, query) && labels(item).some((label) => own.has(label));
}

export function described(item, query, far) {
  const parts = [name(item)];
  if (titled(item)) parts.push(`id ${item.id}`);
  if (itself(item, query)) parts.push("the query itself");
  if (item.label) parts.push(`label ${item.label}${sameLabel(item, query) ? ", as the query" : ""}`);
  parts.push(`distance ${distance(far)}`);
  return parts.join(", ");
}

export function tile(item, { query, bits, far, state, look = null, rest = null, under = null }) {
  const kind = itself(item, query) ? " itself" : sameLabel(item, query) ? " same" : "";
  return el(
    "a",
    {
      class: `tile${kind}${isText(item) ? " prose" : ""}`,
      href: address({ ...state, kind: "id", value: item.id }),
      "data-tile": item.id,
      "data-distance": far,
      draggable: "false",
      title: name(item),
      onpointerenter: look && (() => look(item, far)),
      onpointerleave: rest,
      onfocus: look && (() => look(item, far)),
      onblur: rest,
    },
    isText(item) ? passage(item) : face(item, { bits, alt: described(item, query, far) }),
    el(
      "span",
      { class: "under", "aria-hidden": "true" },
      item.label ? el("span", { class: "label" }, item.label) : null,
      el("span", { class: "id" }, under ?? (isText(item) ? item.id : short(item))),
    ),
    bits ? trace(query.code, item.code, bits, isText(item)) : null,
  );
}

function bandOf(band, index, { reply, last, state, look, rest, limit }) {
  const { query, bits, histogram } = reply;
  const cut = last ? (reply.cut ?? 0) : 0;
  const title = `band-${index}`;
  const relevant = histogram?.relevant?.[band.distance];
  const sharing = relevant === undefined ? null : relevant - holdsQuery(band, query);
  const alone = band.count === 1 && holdsQuery(band, query);
  const tiles = band.items.map((item) =>
    el("li", {}, tile(item, { query, bits, far: band.distance, state, look, rest })),
  );
  if (cut > 0) tiles.push(el("li", { class: "beyond" }, beyond(cut, reply, state, limit)));
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
        el("span", { class: "far" }, distance(band.distance)),
        el("span", { class: "unseen" }, " · "),
        el("span", { class: "tally" }, tally(band, query)),
      ),
      sharing === null || alone
        ? null
        : el("p", { class: "sharing" }, `${whole(sharing)} share${sharing === 1 ? "s" : ""} its label`),
    ),
    el("ul", { class: listClass(band.items) }, tiles),
  );
}

// The cut runs through a tie: what is missing is as near as what is shown.
function beyond(cut, reply, state, limit) {
  const shown = reply.bands.reduce((sum, band) => sum + band.items.length, 0);
  const words = [
    el("b", {}, `+${whole(cut)} `),
    el("span", {}, "just as near"),
  ];
  if (shown + cut > limit) return el("span", { class: "more" }, words);
  const href = address({ ...state, k: shown + cut });
  return el("a", { class: "more", href }, words, el("span", { class: "unseen" }, ": show them too"));
}

export function bands(reply, { state, look, rest, limit }) {
  const last = reply.bands.length - 1;
  return reply.bands.map((band, index) =>
    bandOf(band, index, { reply, last: index === last, state, look, rest, limit }),
  );
}

export function announced(reply, subject) {
  const shown = reply.bands.reduce((sum, band) => sum + band.items.length, 0);
  if (!shown) return `No results for ${subject}.`;
  const end = reply.bands[reply.bands.length - 1];
  const parts = [
    `${many(shown, "result")} for ${subject}`,
    `nearest at distance ${distance(reply.bands[0].distance)}`,
    many(reply.bands.length, "band"),
  ];
  if (reply.cut > 0) {
    parts.push(`the last, at distance ${distance(end.distance)}, goes on: ${tally(end, reply.query)}`);
  }
  return `${parts.join(", ")}.`;
}
