// An item as something to look at: its picture, its text, else its title, else its code.

import { el, ownPath } from "./dom.js";
import { glyph } from "./bits.js";

const TINY = 96; // pixels: below it a smooth enlargement is a blur

export function face(item, { bits = null, alt = "", big = false } = {}) {
  const path = ownPath(item.image);
  if (path) {
    const image = el("img", { src: path, alt, class: "face", decoding: "async" });
    if (!big) image.loading = "lazy";
    image.addEventListener("load", () => crisp(image));
    image.addEventListener("error", () => image.replaceWith(words(item, alt)), { once: true });
    return image;
  }
  if (titled(item) || !item.code || !bits) return words(item, alt);
  return glyph(item.code, bits, alt);
}

export function crisp(image) {
  const small = Math.max(image.naturalWidth, image.naturalHeight) <= TINY;
  image.classList.toggle("pixels", small);
}

const words = (item, alt) =>
  el("span", { class: "face words", role: "img", "aria-label": alt || null }, name(item));

// where an item has no title of its own, the service gives its id
export const titled = (item) => Boolean(item.title) && item.title !== String(item.id);

export const isText = (item) => typeof item?.text === "string";

export const name = (item) =>
  titled(item) ? item.title : isText(item) ? `“${clip(item.text)}”` : `item ${item.id}`;

const clip = (text) => (text.length > 60 ? `${text.slice(0, 60).trimEnd()}…` : text);

// texts are read, so they stand below each other
export const listClass = (items, kind = "") =>
  `tiles${items.some(isText) ? " texts" : ""}${kind ? ` ${kind}` : ""}`;

export const passage = (item) =>
  el("span", { class: "passage" },
    titled(item) ? el("b", {}, item.title) : null,
    el("span", { class: "snippet" }, item.text));

// under a picture there is room for one of them
export const short = (item) => (titled(item) ? item.title : item.id);
