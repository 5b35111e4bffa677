// The three views: each asks the service and gives back what to show and what to say.

import * as api from "./api.js";
import { el } from "./dom.js";
import { compare } from "./compare.js";
import { PAGE, gallery } from "./gallery.js";
import { quality } from "./quality.js";
import { previews, results, subject } from "./results.js";
import { address } from "./state.js";

const items = new Map(); // id -> what is known of it, so that a click asks only once
const MOST_ITEMS = 2000;

function remember(found) {
  if (items.size > MOST_ITEMS) items.clear();
  for (const item of found) items.set(String(item.id), item);
}

async function known(id, stats, signal) {
  if (!stats.items) return null;
  if (!items.has(id)) remember([await api.item(id, signal)]);
  return items.get(id);
}

export async function start(state, { stats, signal, offset = 0, turn }) {
  let found = null;
  if (stats.count) {
    found = { offset, ...(await api.items(offset, PAGE, signal)) };
    remember(found.items);
  }
  return { node: gallery(found, { stats, state, turn }), said: "", title: "rankbits" };
}

export async function search(state, { stats, signal, ready = null }) {
  const asked = { [state.kind]: state.value, k: state.k };
  const reply = ready ?? (await api.search(asked, signal));
  const item = state.kind === "id" ? await known(state.value, stats, signal) : null;
  for (const band of reply.bands) remember(band.items);
  const compares = stats.compare.length > 0;
  const shown = results(reply, { state, item, limit: stats.limits.k, compares });
  return { ...shown, title: `${subject(state, item)} · rankbits` };
}

const hint = (title, ...sentences) => ({
  node: el("div", { class: "welcome" }, el("h2", {}, title), sentences.map((s) => el("p", {}, s))),
  said: title,
  title: "rankbits",
});

export async function comparison(state, { stats, signal }) {
  if (!stats.compare.length) {
    return hint(
      "Nothing to compare yet",
      el("span", {}, "Start the service with embeddings of the same items, ",
        el("code", {}, "rankbits serve INDEX --compare x.npz"),
        ", and see several codes of them side by side."),
    );
  }
  if (state.kind !== "id" && !(state.kind === "text" && stats.accepts.includes("text"))) {
    const whose = state.kind ? `${subject(state, null)} is not a stored item` : "pick an item first";
    return hint(
      "Compare by an item",
      `Codes are compared for an item of the database, and ${whose}.`,
      el("a", { href: address({ ...state, view: "search" }) }, "Go to the search"),
    );
  }
  const reply = await api.compare(state.kind, state.value, state.k, signal);
  const item = state.kind === "id" ? await known(state.value, stats, signal) : null;
  for (const method of reply.methods) for (const band of method.bands) remember(band.items);
  const who = subject(state, item);
  return { ...compare(reply, { state, who }), title: `${who}, compared · rankbits` };
}

export async function report(state, { stats, signal }) {
  if (!stats.report) {
    return hint(
      "No report yet",
      el("span", {}, "Start the service with one, ",
        el("code", {}, "rankbits serve INDEX --report report.json"),
        ", as rankbits evaluate writes it."),
    );
  }
  return { ...quality(await api.report(signal)), title: "Quality · rankbits" };
}

// A picture or a vector has no address of its own; its code has.
export async function asked(question, state, signal) {
  const reply = question.file
    ? await api.searchImage(question.file, state.k, signal)
    : await api.search({ vector: question.vector, k: state.k }, signal);
  if (question.file) {
    const old = previews.get(reply.query.code);
    if (old) URL.revokeObjectURL(old);
    previews.set(reply.query.code, URL.createObjectURL(question.file));
  }
  return reply;
}
