// The page before the first query: items to search by.

import { el, formatWhole } from "./dom.js";
import { drawFace, isText, chooseListClass, nameItem, drawPassage, chooseCaption } from "./faces.js";
import { makeAddress } from "./state.js";

export const PAGE = 60;

function drawTile(item, state) {
  const alt = item.label ? `${nameItem(item)}, label ${item.label}` : nameItem(item);
  return el(
    "a",
    {
      class: isText(item) ? "tile prose" : "tile", href: makeAddress({ ...state, kind: "id", value: item.id }),
      "data-tile": item.id, title: nameItem(item), draggable: "false",
    },
    isText(item) ? drawPassage(item) : drawFace(item, { alt }),
    el(
      "span",
      { class: "under", "aria-hidden": "true" },
      item.label ? el("span", { class: "label" }, item.label) : null,
      el("span", { class: "id" }, isText(item) ? item.id : chooseCaption(item)),
    ),
  );
}

function writeInvitation(stats, listed) {
  const ways = [];
  const touch = matchMedia("(hover: none)").matches;
  if (stats.accepts.includes("image")) ways.push(touch ? "choose an image" : "drop an image anywhere");
  if (stats.accepts.includes("text")) ways.push("type a sentence");
  if (stats.accepts.includes("id")) ways.push("type an id");
  else ways.push("give a code");
  if (listed) ways.push("pick an item below");
  const list = ways.length > 1 ? `${ways.slice(0, -1).join(", ")} or ${ways.at(-1)}` : ways[0];
  return list.charAt(0).toUpperCase() + list.slice(1);
}

// `page` is a page of /items, or null where the database is empty.
export function drawGallery(page, { stats, state, turn }) {
  const empty = stats.count === 0;
  const start = el(
    "div",
    { class: "welcome" },
    el("h2", {}, empty ? "The database is empty" : "Find similar items"),
    el("p", {}, empty ? "Add items through the API, then search." : `${writeInvitation(stats, page?.items.length)}.`),
  );
  if (!page || !page.items.length) return el("div", {}, start);
  const end = page.offset + page.items.length;
  const span = `${formatWhole(page.offset + 1)} to ${formatWhole(end)} of ${formatWhole(page.total)}`;
  return el(
    "div",
    {},
    start,
    el("ul", { class: chooseListClass(page.items, "wide"), "aria-label": `Items ${span}` }, page.items.map((item) =>
      el("li", {}, drawTile(item, state)))),
    el(
      "p",
      { class: "pages" },
      el("button", { type: "button", class: "quiet", disabled: page.offset === 0,
        onclick: () => turn(Math.max(page.offset - PAGE, 0)) }, "Previous"),
      el("span", {}, span),
      el("button", { type: "button", class: "quiet", disabled: end >= page.total,
        onclick: () => turn(end) }, "Next"),
    ),
  );
}
