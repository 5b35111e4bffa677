// The state of the page is its address: #/search?id=17&k=20. Back, forward and sharing follow.

const VIEWS = ["search", "compare", "quality"];
export const KINDS = ["id", "text", "code"];
export const SHOWN = 20;

export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const kind = KINDS.find((name) => given.get(name)) ?? null;
  const k = Number.parseInt(given.get("k"), 10);
  return {
    view: VIEWS.includes(path) ? path : "search",
    kind,
    value: kind ? given.get(kind) : null,
    k: k >= 1 ? k : SHOWN,
  };
}

export function address({ view = "search", kind = null, value = null, k = SHOWN }) {
  const query = new URLSearchParams();
  if (kind && value !== null) query.set(kind, value);
  if (k !== SHOWN) query.set("k", k);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export function go(change) {
  const next = address({ ...read(), ...change });
  if (next === location.hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = next;
}
