// How a query comes in: typed, chosen, dropped or pasted.

import { byId, el } from "./dom.js";
import { SHOWN, go, read } from "./state.js";

const WAYS = {
  id: ["id", "An item's id"],
  text: ["words", "A sentence, a question or some words"],
  code: ["code", "A code in hex digits"],
  vector: ["vector", "Numbers, by commas or spaces"],
};
const COUNTS = [10, 20, 50, 100, 200];

const imageOf = (list) => [...(list ?? [])][0] ?? null;

export function numbers(text) {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const found = parts.map(Number);
  return found.length && found.every(Number.isFinite) ? found : null;
}

// `ask` receives {file} or {vector}; everything else becomes an address. `trouble` shows a sentence.
export function listen(stats, { ask, anyItem, trouble }) {
  const [field, by, k] = [byId("words"), byId("by"), byId("k")];
  const ways = ["text", "id", "code", "vector"].filter((way) => stats.accepts.includes(way));
  by.replaceChildren(...ways.map((way) => el("option", { value: way }, WAYS[way][0])));
  const images = stats.accepts.includes("image");
  byId("pick").hidden = !images;
  byId("random").hidden = !stats.items || stats.count === 0;

  const placed = () => {
    const words = WAYS[by.value]?.[1] ?? "";
    field.placeholder = words;
    byId("words-label").textContent = words;
  };
  by.addEventListener("change", placed);
  placed();

  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = field.value.trim();
    if (!value) return field.focus();
    if (by.value !== "vector") return go({ view: aim(by.value), kind: by.value, value });
    const vector = numbers(value);
    return vector ? ask({ vector }) : trouble("A vector must be finite numbers, by commas or spaces.");
  });

  const given = (file) => {
    if (!file) return;
    if (images) ask({ file });
    else trouble("This service has no model that reads images; search by an id instead.");
  };
  byId("file").addEventListener("change", (event) => {
    given(imageOf(event.target.files));
    event.target.value = ""; // the same file again is a new question
  });
  window.addEventListener("paste", (event) => given(imageOf(event.clipboardData?.files)));
  dropping(given);

  byId("random").addEventListener("click", anyItem);
  k.addEventListener("change", () => go({ k: Number(k.value) }));
  return { reflect: (state) => reflect(state, stats, placed) };
}

// A comparison is of stored items or of words; codes lead back to the results.
const aim = (kind) => (read().view === "compare" && kind !== "code" ? "compare" : "search");

function reflect(state, stats, placed) {
  const [field, by, k] = [byId("words"), byId("by"), byId("k")];
  if (state.kind && [...by.options].some((option) => option.value === state.kind)) {
    by.value = state.kind;
    placed();
  }
  field.value = state.value ?? "";
  const most = stats.limits.k;
  const offered = [...new Set([...COUNTS, SHOWN, state.k])].filter((n) => n <= most || n === state.k);
  offered.sort((a, b) => a - b);
  k.replaceChildren(...offered.map((n) => el("option", { value: n }, String(n))));
  k.value = String(state.k);
}

function dropping(given) {
  const veil = byId("drop");
  const files = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  window.addEventListener("dragover", (event) => {
    if (!files(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  window.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) veil.hidden = true;
  });
  window.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!files(event)) return;
    event.preventDefault();
    given(imageOf(event.dataTransfer.files));
  });
}
