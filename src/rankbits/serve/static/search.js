// The search form: a query is typed, chosen, dropped or pasted.

import { byId, el } from "./dom.js";
import { SHOWN, go, read } from "./state.js";

const WAYS = {
  id: ["id", "An item's id"],
  text: ["words", "A sentence, a question or some words"],
  code: ["code", "A code in hex digits"],
  vector: ["vector", "Numbers, separated by commas or spaces"],
};
const COUNTS = [10, 20, 50, 100, 200];

const takeFirst = (list) => [...(list ?? [])][0] ?? null;

export function parseNumbers(text) {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const values = parts.map(Number);
  return values.length && values.every(Number.isFinite) ? values : null;
}

// `ask` gets {file} or {vector}; all other queries become an address. `showTrouble` shows a sentence.
export function listen(stats, { ask, openAnyItem, showTrouble }) {
  const [field, by, k] = [byId("words"), byId("by"), byId("k")];
  const ways = ["text", "id", "code", "vector"].filter((way) => stats.accepts.includes(way));
  by.replaceChildren(...ways.map((way) => el("option", { value: way }, WAYS[way][0])));
  const images = stats.accepts.includes("image");
  byId("pick").hidden = !images;
  byId("random").hidden = !stats.items || stats.count === 0;

  const showPlaceholder = () => {
    const words = WAYS[by.value]?.[1] ?? "";
    field.placeholder = words;
    byId("words-label").textContent = words;
  };
  by.addEventListener("change", showPlaceholder);
  showPlaceholder();

  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = field.value.trim();
    if (!value) return field.focus();
    if (by.value !== "vector") return go({ view: chooseView(by.value), kind: by.value, value });
    const vector = parseNumbers(value);
    if (vector) return ask({ vector });
    return showTrouble("A vector must be finite numbers, separated by commas or spaces.");
  });

  const searchByFile = (file) => {
    if (!file) return;
    if (images) ask({ file });
    else showTrouble("This service has no model that reads images; search by an id instead.");
  };
  byId("file").addEventListener("change", (event) => {
    searchByFile(takeFirst(event.target.files));
    event.target.value = ""; // so that the same file can be chosen again
  });
  window.addEventListener("paste", (event) => searchByFile(takeFirst(event.clipboardData?.files)));
  listenForDrops(searchByFile);

  byId("random").addEventListener("click", openAnyItem);
  k.addEventListener("change", () => go({ k: Number(k.value) }));
  return { reflect: (state) => reflect(state, stats, showPlaceholder) };
}

// Only stored items and texts can be compared; a code goes to the results.
const chooseView = (kind) => (read().view === "compare" && kind !== "code" ? "compare" : "search");

// Fills the form in from the state of the page.
function reflect(state, stats, showPlaceholder) {
  const [field, by, k] = [byId("words"), byId("by"), byId("k")];
  if (state.kind && [...by.options].some((option) => option.value === state.kind)) {
    by.value = state.kind;
    showPlaceholder();
  }
  field.value = state.value ?? "";
  const most = stats.limits.k;
  const offered = [...new Set([...COUNTS, SHOWN, state.k])].filter((n) => n <= most || n === state.k);
  offered.sort((a, b) => a - b);
  k.replaceChildren(...offered.map((n) => el("option", { value: n }, String(n))));
  k.value = String(state.k);
}

function listenForDrops(searchByFile) {
  const veil = byId("drop");
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    veil.hidden = false;
  });
  window.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) veil.hidden = true;
  });
  window.addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    searchByFile(takeFirst(event.dataTransfer.files));
  });
}
