// Elements and words. Whatever comes from the service becomes text here, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  // append() makes text nodes of strings, so a title such as "<img onerror=…>" stays a title
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

export const whole = (n) => Number(n).toLocaleString("en-US");

export const many = (n, one, more = `${one}s`) => `${whole(n)} ${n === 1 ? one : more}`;

// Four digits, as the reports print them; an undefined figure is a dash.
export const figure = (x) =>
  x === null || x === undefined || !Number.isFinite(x) ? "–" : x.toFixed(4);

export const distance = (d) => (Number.isInteger(d) ? whole(d) : d.toFixed(3));

export function say(sentence) {
  byId("said").textContent = sentence;
}

// Only a path of this service may be a picture or a link's target.
export const ownPath = (path) =>
  typeof path === "string" && path.startsWith("/") && !path.startsWith("//") ? path : null;
