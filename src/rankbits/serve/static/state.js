// The state of the page is its address, #/search?id=17&k=20, so that back, forward and links work.

const VIEWS = ["search", "compare", "quality"];
export const KINDS = ["id", "text", "code"];
export const SHOWN = 20;

export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const values = new URLSearchParams(query);
  const kind = KINDS.find((name) => values.get(name)) ?? null;
  const k = Number.parseInt(values.get("k"), 10);
  return {
    view: VIEWS.includes(path) ? path : "search",
    kind,
    value: kind ? values.get(kind) : null,
    k: k >= 1 ? k : SHOWN,
  };
}

export function makeAddress({ view = "search", kind = null, value = null, k = SHOWN }) {
  const query = new URLSearchParams();
  if (kind && value !== null) query.set(kind, value);
  if (k !== SHOWN) query.set("k", k);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export function go(change) {
  const next = makeAddress({ ...read(), ...change });
  if (next === location.hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = next;
}
