// The page: reads its address, asks, shows. Every state it can be in has an address.

import { Refused, items, stats as askStats } from "./api.js";
import { byId, el, many, say } from "./dom.js";
import { arrows, roving } from "./keys.js";
import { listen } from "./search.js";
import { address, go, read } from "./state.js";
import * as views from "./views.js";

const TABS = ["search", "compare", "quality"];
const PATIENCE = 150; // ms before a wait is worth showing

let stats = null;
let form = null;
let flight = null; // what is being asked now; a newer question ends it
let ready = null; // an answer that came before its address did: {code, reply}
let offset = 0;

const panel = (view) => byId(`panel-${view}`);

function trouble(sentence, retry = null) {
  const box = byId("trouble");
  box.hidden = !sentence;
  if (!sentence) return box.replaceChildren();
  const again = retry && el("button", { type: "button", class: "quiet", onclick: retry }, "Try again");
  return box.replaceChildren(el("p", {}, sentence), ...(again ? [again] : []));
}

// Runs one question; an older one that is still under way is dropped.
async function during(view, work) {
  flight?.abort();
  const mine = new AbortController();
  flight = mine;
  const box = panel(view);
  const slow = setTimeout(() => {
    byId("progress").hidden = false;
    box.setAttribute("aria-busy", "true");
  }, PATIENCE);
  try {
    return await work(mine.signal);
  } catch (fault) {
    if (fault.name === "AbortError" || flight !== mine) return null;
    throw fault;
  } finally {
    clearTimeout(slow);
    if (flight === mine) byId("progress").hidden = true;
    box.removeAttribute("aria-busy");
  }
}

function tabsFor(state) {
  for (const view of TABS) {
    const tab = byId(`tab-${view}`);
    const chosen = view === state.view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    panel(view).hidden = !chosen;
  }
}

const turn = (to) => {
  offset = to;
  show();
};

function viewOf(state) {
  if (state.view === "compare") return views.comparison;
  if (state.view === "quality") return views.report;
  return state.kind ? views.search : views.start;
}

async function show() {
  const state = read();
  const box = panel(state.view);
  const byTile = document.activeElement?.matches?.("a.tile:focus-visible");
  tabsFor(state);
  form.reflect(state);
  const held = state.kind === "code" && ready?.code === state.value ? ready.reply : null;
  ready = null;
  try {
    const made = await during(state.view, (signal) =>
      viewOf(state)(state, { stats, signal, offset, turn, ready: held }));
    if (!made) return;
    trouble("");
    box.replaceChildren(made.node);
    document.title = made.title;
    say(made.said);
    roving(box);
    // whoever walks by keyboard walks on from the first result
    if (byTile) box.querySelector("a.tile")?.focus({ preventScroll: true });
    if (state.kind && window.scrollY > box.offsetTop) window.scrollTo({ top: 0 });
  } catch (fault) {
    box.replaceChildren();
    refused(fault, show);
    if (!fault.again && state.view === "search" && state.kind) await instead(box);
  }
}

// Under the sentence about a query that is not to be had: others that are.
async function instead(box) {
  const state = { ...read(), kind: null, value: null };
  const leave = (to) => {
    offset = to;
    go({ kind: null, value: null });
  };
  const made = await during("search", (signal) =>
    views.start(state, { stats, signal, offset, turn: leave }));
  if (!made) return;
  box.replaceChildren(made.node);
  roving(box);
}

function refused(fault, retry) {
  if (!(fault instanceof Refused)) throw fault;
  trouble(fault.message, fault.again ? retry : null);
}

async function ask(question) {
  const state = read();
  try {
    const reply = await during(state.view, (signal) => views.asked(question, state, signal));
    if (!reply) return;
    ready = { code: reply.query.code, reply };
    go({ view: "search", kind: "code", value: reply.query.code });
  } catch (fault) {
    refused(fault, null);
  }
}

async function anyItem() {
  try {
    const at = Math.floor(Math.random() * stats.count);
    const found = await items(at, 1);
    if (found.items.length) go({ kind: "id", value: found.items[0].id, view: shownView() });
  } catch (fault) {
    refused(fault, anyItem);
  }
}

const shownView = () => (read().view === "compare" ? "compare" : "search");

function tabKeys(event) {
  const at = TABS.indexOf(event.target.id.replace("tab-", ""));
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: TABS.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const view = TABS[(next + TABS.length) % TABS.length];
  byId(`tab-${view}`).focus();
  go({ view });
}

function shortcuts(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  const field = byId("words");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if (event.key === "Escape") {
    escape(event.target, typing, field);
  }
}

// One thing at a time: an open definition, a message, what is typed, the query.
function escape(target, typing, field) {
  document.body.classList.add("hushed");
  if (target.matches(".term")) return;
  if (!byId("trouble").hidden) trouble("");
  else if (typing && field.value && field.value !== read().value) field.value = "";
  else if (read().kind) go({ kind: null, value: null, view: "search" });
}

function wire() {
  for (const view of TABS) {
    const tab = byId(`tab-${view}`);
    tab.addEventListener("click", () => go({ view }));
    tab.addEventListener("keydown", tabKeys);
    arrows(panel(view));
  }
  document.addEventListener("keydown", shortcuts);
  for (const kind of ["focusin", "pointerover"]) {
    document.addEventListener(kind, () => document.body.classList.remove("hushed"));
  }
  // "#main" would read as a state of the page
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  window.addEventListener("hashchange", show);
}

async function begin() {
  try {
    stats = await askStats();
  } catch (fault) {
    refused(fault, begin);
    return;
  }
  byId("size").textContent = `${many(stats.count, "item")} · ${many(stats.bits, "bit")}`;
  form = listen(stats, { ask, anyItem, trouble });
  wire();
  if (!location.hash) history.replaceState(null, "", address({}));
  await show();
}

begin();
