// Before the first query: items to begin with.

import { el, whole } from "./dom.js";
import { face, isText, listClass, name, passage, short } from "./faces.js";
import { address } from "./state.js";

export const PAGE = 60;

function tile(item, state) {
  const alt = item.label ? `${name(item)}, label ${item.label}` : name(item);
  return el(
    "a",
    {
      class: isText(item) ? "tile prose" : "tile", href: address({ ...state, kind: "id", value: item.id }),
      "data-tile": item.id, title: name(item), draggable: "false",
    },
    isText(item) ? passage(item) : face(item, { alt }),
    el(
      "span",
      { class: "under", "aria-hidden": "true" },
      item.label ? el("span", { class: "label" }, item.label) : null,
      el("span", { class: "id" }, isText(item) ? item.id : short(item)),
    ),
  );
}

function invitation(stats, listed) {
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

// `found` is a page of /items, or null where the service keeps none.
export function gallery(found, { stats, state, turn }) {
  const empty = stats.count === 0;
  const start = el(
    "div",
    { class: "welcome" },
    el("h2", {}, empty ? "The database is empty" : "What is it near to?"),
    el("p", {}, empty ? "Add items through the API, then search." : `${invitation(stats, found?.items.length)}.`),
  );
  if (!found || !found.items.length) return el("div", {}, start);
  const end = found.offset + found.items.length;
  const span = `${whole(found.offset + 1)} to ${whole(end)} of ${whole(found.total)}`;
  return el(
    "div",
    {},
    start,
    el("ul", { class: listClass(found.items, "wide"), "aria-label": `Items ${span}` }, found.items.map((item) =>
      el("li", {}, tile(item, state)))),
    el(
      "p",
      { class: "pages" },
      el("button", { type: "button", class: "quiet", disabled: found.offset === 0,
        onclick: () => turn(Math.max(found.offset - PAGE, 0)) }, "Before"),
      el("span", {}, span),
      el("button", { type: "button", class: "quiet", disabled: end >= found.total,
        onclick: () => turn(end) }, "After"),
    ),
  );
}
