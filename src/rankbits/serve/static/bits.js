// Drawings of codes. Bit i of a code is bit (7 - i % 8) of byte i // 8 of its hex form.

import { el, formatCount, svg } from "./dom.js";

export function readBits(hex, bits) {
  const values = new Uint8Array(bits);
  for (let i = 0; i < bits; i += 1) {
    const byte = Number.parseInt(hex.substr(2 * (i >> 3), 2), 16) || 0;
    values[i] = (byte >> (7 - (i & 7))) & 1;
  }
  return values;
}

export function findDiffering(first, second, bits) {
  const a = readBits(first, bits);
  const b = readBits(second, bits);
  return [...a.keys()].filter((i) => a[i] !== b[i]);
}

const drawSquare = (x, y, side) => `M${x} ${y}h${side}v${side}h${-side}z`;

// A small picture of a code, for items that have no image and no title.
export function drawGlyph(hex, bits, alt) {
  const wide = Math.ceil(Math.sqrt(bits));
  const ones = [...readBits(hex, bits).entries()].filter(([, bit]) => bit);
  const path = ones.map(([i]) => drawSquare((i % wide) + 0.06, Math.floor(i / wide) + 0.06, 0.88));
  return svg(
    "svg",
    { class: "face glyph", viewBox: `-1 -1 ${wide + 2} ${wide + 2}`, role: "img", "aria-label": alt },
    svg("path", { d: path.join("") }),
  );
}

const MOST_IN_TRACE = 128;
const MOST_ACROSS = 512; // where a result is as wide as the page

// Under a result: a low tick for each equal bit, a tall one for each that differs.
export function drawTrace(query, hex, bits, wide = false) {
  if (!hex || bits > (wide ? MOST_ACROSS : MOST_IN_TRACE)) return null;
  const apart = new Set(findDiffering(query, hex, bits));
  let same = "";
  let differ = "";
  for (let i = 0; i < bits; i += 1) {
    if (apart.has(i)) differ += `M${i + 0.1} 0h.8v6h-.8z`;
    else same += `M${i + 0.18} 4h.64v2h-.64z`;
  }
  return svg(
    "svg",
    { class: "trace", viewBox: `0 0 ${bits} 6`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "same", d: same }),
    svg("path", { class: "differ", d: differ }),
  );
}

const SIDE = 10;
const STEP = 12;
const GAP = 5; // between bytes
const BELOW = STEP + 9; // from a bit of the query to the same bit of a result
const ROW = BELOW + STEP + 10;

function writeHint(bits, wide) {
  if (bits > (wide ? MOST_ACROSS : MOST_IN_TRACE)) return "Point at a result to see here the bits in which it differs.";
  const ticks = "Tall ticks under a result are the bits in which it differs";
  return matchMedia("(hover: none)").matches ? `${ticks}.` : `${ticks}; point at it to see them here.`;
}

// The strip: the query's bits, and under them the bits of the result that has the pointer or focus.
export function drawStrip(code, bits, wide = false) {
  const line = bits > 256 ? 64 : 32;
  const lines = Math.ceil(bits / line);
  const across = Math.min(line, bits);
  const width = across * STEP + (Math.ceil(across / 8) - 1) * GAP;
  const place = (i) => {
    const column = i % line;
    return [column * STEP + (column >> 3) * GAP, Math.floor(i / line) * ROW];
  };
  const draw = (hex, below, marked = new Set()) => {
    const values = readBits(hex, bits);
    return [...values.keys()].map((i) => {
      const [x, y] = place(i);
      const bit = { x: x + 1, y: y + below + 1, width: SIDE - 1, height: SIDE - 1, rx: 1.5 };
      const kind = values[i] ? "on" : "off";
      return svg("rect", { ...bit, class: marked.has(i) ? `${kind} apart` : kind });
    });
  };
  const own = svg("g", { class: "own" }, draw(code, 0));
  const other = svg("g", { class: "other" });
  const box = svg(
    "svg",
    { class: "strip", viewBox: `0 0 ${width} ${lines * ROW - 9}`, role: "img" },
    own,
    other,
  );
  const caption = el("p", { class: "caption" });
  const ones = readBits(code, bits).reduce((sum, bit) => sum + bit, 0);

  function showQuery() {
    box.setAttribute("aria-label", `The query's code: ${ones} of ${formatCount(bits, "bit")} are one.`);
    other.replaceChildren();
    caption.textContent = writeHint(bits, wide);
  }

  function compareWith(item) {
    if (!item.code) return showQuery();
    const apart = findDiffering(code, item.code, bits);
    const listed = apart.slice(0, 12).map((i) => i + 1).join(", ");
    const more = apart.length > 12 ? ", …" : "";
    const sentence = apart.length
      ? `Item ${item.id} differs in ${apart.length} of ${formatCount(bits, "bit")}: ${listed}${more}`
      : `Item ${item.id} has the same ${formatCount(bits, "bit")}.`;
    other.replaceChildren(
      ...draw(item.code, BELOW, new Set(apart)),
      ...apart.map((i) => {
        const [x, y] = place(i);
        // a stroke joins the two bits, so that colour is not the only sign
        const middle = x + 1 + (SIDE - 1) / 2;
        return svg("path", { class: "mark", d: `M${middle} ${y + SIDE + 1.5}V${y + BELOW - 0.5}` });
      }),
    );
    box.setAttribute("aria-label", sentence);
    caption.textContent = sentence;
    return undefined;
  }

  showQuery();
  return { node: el("div", { class: "code" }, box, caption), compareWith, showQuery };
}
