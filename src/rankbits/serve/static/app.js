// The page: it reads its address, asks the service and shows the answer. Every state has an address.

import { Refused, fetchItems, fetchStats } from "./api.js";
import { byId, el, formatCount, say } from "./dom.js";
import { moveByArrows, resetTabOrder } from "./keys.js";
import { listen } from "./search.js";
import { makeAddress, go, read } from "./state.js";
import * as views from "./views.js";

const TABS = ["search", "compare", "quality"];
const PATIENCE = 150; // milliseconds before the page shows that it waits

let stats = null;
let form = null;
let flight = null; // the request under way; a newer one aborts it
let ready = null; // a reply whose address is shown next: {code, reply}
let offset = 0;

const getPanel = (view) => byId(`panel-${view}`);

function showTrouble(sentence, retry = null) {
  const box = byId("trouble");
  box.hidden = !sentence;
  if (!sentence) return box.replaceChildren();
  const again = retry && el("button", { type: "button", class: "quiet", onclick: retry }, "Try again");
  return box.replaceChildren(el("p", {}, sentence), ...(again ? [again] : []));
}

// Runs `work` and aborts an older run. Returns null if a newer run aborts this one.
async function runLatest(view, work) {
  flight?.abort();
  const mine = new AbortController();
  flight = mine;
  const box = getPanel(view);
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

function selectTab(state) {
  for (const view of TABS) {
    const tab = byId(`tab-${view}`);
    const selected = view === state.view;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    getPanel(view).hidden = !selected;
  }
}

const turn = (to) => {
  offset = to;
  show();
};

function chooseView(state) {
  if (state.view === "compare") return views.showComparison;
  if (state.view === "quality") return views.showReport;
  return state.kind ? views.showResults : views.showStart;
}

async function show() {
  const state = read();
  const box = getPanel(state.view);
  const byKeyboard = document.activeElement?.matches?.("a.tile:focus-visible");
  selectTab(state);
  form.reflect(state);
  const reply = state.kind === "code" && ready?.code === state.value ? ready.reply : null;
  ready = null;
  try {
    const shown = await runLatest(state.view, (signal) =>
      chooseView(state)(state, { stats, signal, offset, turn, ready: reply }));
    if (!shown) return;
    showTrouble("");
    box.replaceChildren(shown.node);
    document.title = shown.title;
    say(shown.said);
    resetTabOrder(box);
    // a user of the keyboard goes on from the first result
    if (byKeyboard) box.querySelector("a.tile")?.focus({ preventScroll: true });
    if (state.kind && window.scrollY > box.offsetTop) window.scrollTo({ top: 0 });
  } catch (fault) {
    box.replaceChildren();
    showRefusal(fault, show);
    if (!fault.again && state.view === "search" && state.kind) await offerItems(box);
  }
}

// Shows items to search by, below the sentence that refuses a query.
async function offerItems(box) {
  const state = { ...read(), kind: null, value: null };
  const leave = (to) => {
    offset = to;
    go({ kind: null, value: null });
  };
  const shown = await runLatest("search", (signal) =>
    views.showStart(state, { stats, signal, offset, turn: leave }));
  if (!shown) return;
  box.replaceChildren(shown.node);
  resetTabOrder(box);
}

function showRefusal(fault, retry) {
  if (!(fault instanceof Refused)) throw fault;
  showTrouble(fault.message, fault.again ? retry : null);
}

async function ask(input) {
  const state = read();
  try {
    const reply = await runLatest(state.view, (signal) => views.searchByInput(input, state, signal));
    if (!reply) return;
    ready = { code: reply.query.code, reply };
    go({ view: "search", kind: "code", value: reply.query.code });
  } catch (fault) {
    showRefusal(fault, null);
  }
}

async function openAnyItem() {
  try {
    const { items: [item] } = await fetchItems(Math.floor(Math.random() * stats.count), 1);
    const view = read().view === "compare" ? "compare" : "search";
    if (item) go({ kind: "id", value: item.id, view });
  } catch (fault) {
    showRefusal(fault, openAnyItem);
  }
}

function moveTab(event) {
  const at = TABS.indexOf(event.target.id.replace("tab-", ""));
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: TABS.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const view = TABS[(next + TABS.length) % TABS.length];
  byId(`tab-${view}`).focus();
  go({ view });
}

function handleShortcut(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  const field = byId("words");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if (event.key === "Escape") {
    clearOne(event.target, typing, field);
  }
}

// Clears one thing at a time: an open definition, a message, what is typed, the query.
function clearOne(target, typing, field) {
  document.body.classList.add("hushed");
  if (target.matches(".term")) return;
  if (!byId("trouble").hidden) showTrouble("");
  else if (typing && field.value && field.value !== read().value) field.value = "";
  else if (read().kind) go({ kind: null, value: null, view: "search" });
}

function addListeners() {
  for (const view of TABS) {
    const tab = byId(`tab-${view}`);
    tab.addEventListener("click", () => go({ view }));
    tab.addEventListener("keydown", moveTab);
    moveByArrows(getPanel(view));
  }
  document.addEventListener("keydown", handleShortcut);
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
    stats = await fetchStats();
  } catch (fault) {
    showRefusal(fault, begin);
    return;
  }
  byId("size").textContent = `${formatCount(stats.count, "item")} · ${formatCount(stats.bits, "bit")}`;
  form = listen(stats, { ask, openAnyItem, showTrouble });
  addListeners();
  if (!location.hash) history.replaceState(null, "", makeAddress({}));
  await show();
}

begin();
