// Drawings of an item: its image or its text, else its title, else its code.

import { el, keepOwnPath } from "./dom.js";
import { drawGlyph } from "./bits.js";

const TINY = 96; // pixels: smaller images are enlarged without smoothing, which would blur them

export function drawFace(item, { bits = null, alt = "", big = false } = {}) {
  const path = keepOwnPath(item.image);
  if (path) {
    const image = el("img", { src: path, alt, class: "face", decoding: "async" });
    if (!big) image.loading = "lazy";
    image.addEventListener("load", () => sharpen(image));
    image.addEventListener("error", () => image.replaceWith(drawWords(item, alt)), { once: true });
    return image;
  }
  if (hasTitle(item) || !item.code || !bits) return drawWords(item, alt);
  return drawGlyph(item.code, bits, alt);
}

export function sharpen(image) {
  const small = Math.max(image.naturalWidth, image.naturalHeight) <= TINY;
  image.classList.toggle("pixels", small);
}

const drawWords = (item, alt) =>
  el("span", { class: "face words", role: "img", "aria-label": alt || null }, nameItem(item));

// The service gives an item without a title its id as the title.
export const hasTitle = (item) => Boolean(item.title) && item.title !== String(item.id);

export const isText = (item) => typeof item?.text === "string";

export const nameItem = (item) =>
  hasTitle(item) ? item.title : isText(item) ? `“${clip(item.text)}”` : `item ${item.id}`;

const clip = (text) => (text.length > 60 ? `${text.slice(0, 60).trimEnd()}…` : text);

// Texts are listed below each other, to be read.
export const chooseListClass = (items, kind = "") =>
  `tiles${items.some(isText) ? " texts" : ""}${kind ? ` ${kind}` : ""}`;

export const drawPassage = (item) =>
  el("span", { class: "passage" },
    hasTitle(item) ? el("b", {}, item.title) : null,
    el("span", { class: "snippet" }, item.text));

// Under an image there is room for either the title or the id.
export const chooseCaption = (item) => (hasTitle(item) ? item.title : item.id);
