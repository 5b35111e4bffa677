// Make elements and format numbers. What the service sends becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  // append() turns strings into text nodes, so a title such as "<img onerror=…>" stays a title
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

export const formatWhole = (n) => Number(n).toLocaleString("en-US");

export const formatCount = (n, one, more = `${one}s`) => `${formatWhole(n)} ${n === 1 ? one : more}`;

// Four digits, as in the reports; an undefined figure is a dash.
export const formatFigure = (x) =>
  x === null || x === undefined || !Number.isFinite(x) ? "–" : x.toFixed(4);

export const formatDistance = (d) => (Number.isInteger(d) ? formatWhole(d) : d.toFixed(3));

export function say(sentence) {
  byId("said").textContent = sentence;
}

// Keeps a path of this service; an address elsewhere may not be an image or the target of a link.
export const keepOwnPath = (path) =>
  typeof path === "string" && path.startsWith("/") && !path.startsWith("//") ? path : null;
