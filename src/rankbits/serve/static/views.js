// The views: each asks the service, and returns what to show and what to announce.

import * as api from "./api.js";
import { el } from "./dom.js";
import { drawComparison } from "./compare.js";
import { PAGE, drawGallery } from "./gallery.js";
import { drawReport } from "./quality.js";
import { previews, drawResults, nameQuery } from "./results.js";
import { makeAddress } from "./state.js";

const items = new Map(); // id -> item, so that it is fetched only once
const MOST_ITEMS = 2000;

function remember(list) {
  if (items.size > MOST_ITEMS) items.clear();
  for (const item of list) items.set(String(item.id), item);
}

async function findItem(id, stats, signal) {
  if (!stats.items) return null;
  if (!items.has(id)) remember([await api.fetchItem(id, signal)]);
  return items.get(id);
}

export async function showStart(state, { stats, signal, offset = 0, turn }) {
  let page = null;
  if (stats.count) {
    page = { offset, ...(await api.fetchItems(offset, PAGE, signal)) };
    remember(page.items);
  }
  return { node: drawGallery(page, { stats, state, turn }), said: "", title: "rankbits" };
}

export async function showResults(state, { stats, signal, ready = null }) {
  const body = { [state.kind]: state.value, k: state.k };
  const reply = ready ?? (await api.search(body, signal));
  const item = state.kind === "id" ? await findItem(state.value, stats, signal) : null;
  for (const band of reply.bands) remember(band.items);
  const compares = stats.compare.length > 0;
  const shown = drawResults(reply, { state, item, limit: stats.limits.k, compares });
  return { ...shown, title: `${nameQuery(state, item)} · rankbits` };
}

const makeHint = (title, ...sentences) => ({
  node: el("div", { class: "welcome" }, el("h2", {}, title), sentences.map((s) => el("p", {}, s))),
  said: title,
  title: "rankbits",
});

export async function showComparison(state, { stats, signal }) {
  if (!stats.compare.length) {
    return makeHint(
      "Nothing to compare yet",
      el("span", {}, "Start the service with embeddings of the same items, ",
        el("code", {}, "rankbits serve INDEX --compare x.npz"),
        ", to see several codes of them side by side."),
    );
  }
  if (state.kind !== "id" && !(state.kind === "text" && stats.accepts.includes("text"))) {
    const whose = state.kind ? `${nameQuery(state, null)} is not a stored item` : "pick an item first";
    return makeHint(
      "Compare by an item",
      `Codes are compared for an item of the database, and ${whose}.`,
      el("a", { href: makeAddress({ ...state, view: "search" }) }, "Go to the search"),
    );
  }
  const reply = await api.compare(state.kind, state.value, state.k, signal);
  const item = state.kind === "id" ? await findItem(state.value, stats, signal) : null;
  for (const method of reply.methods) for (const band of method.bands) remember(band.items);
  const who = nameQuery(state, item);
  return { ...drawComparison(reply, { state, who }), title: `${who}, compared · rankbits` };
}

export async function showReport(state, { stats, signal }) {
  if (!stats.report) {
    return makeHint(
      "No report yet",
      el("span", {}, "Start the service with one, ",
        el("code", {}, "rankbits serve INDEX --report report.json"),
        ", which rankbits evaluate --json prints."),
    );
  }
  return { ...drawReport(await api.fetchReport(signal)), title: "Quality · rankbits" };
}

// Searches by an image file or a vector. These have no address of their own; their code has one.
export async function searchByInput({ file, vector }, state, signal) {
  const reply = file
    ? await api.searchImage(file, state.k, signal)
    : await api.search({ vector, k: state.k }, signal);
  if (file) {
    const old = previews.get(reply.query.code);
    if (old) URL.revokeObjectURL(old);
    previews.set(reply.query.code, URL.createObjectURL(file));
  }
  return reply;
}
