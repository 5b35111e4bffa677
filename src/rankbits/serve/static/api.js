// Requests to the service: each returns its JSON, or throws Refused with its sentence.

export class Refused extends Error {
  constructor(sentence, again = false) {
    super(sentence);
    this.again = again; // whether the same request could succeed later
  }
}

const SILENT = "The service does not answer. Is it still running?";

async function call(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new Refused(SILENT, true);
  }
  let body = null;
  try {
    body = await reply.json();
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
  }
  if (!reply.ok || body === null) {
    const sentence = body && typeof body.error === "string" ? body.error : null;
    const fallback = `The service answered with status ${reply.status}.`;
    throw new Refused(sentence ?? fallback, reply.status >= 500);
  }
  return body;
}

const makePost = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

export const fetchStats = () => call("/stats");
export const fetchReport = (signal) => call("/report", { signal });
export const search = (body, signal) => call("/search", makePost(body, signal));
export const fetchItem = (id, signal) => call(`/items/${encodeURIComponent(id)}`, { signal });

export const fetchItems = (offset, limit, signal) =>
  call(`/items?offset=${offset}&limit=${limit}`, { signal });

// by is "id" or "text"
export const compare = (by, value, k, signal) =>
  call(`/compare?${by}=${encodeURIComponent(value)}&k=${k}`, { signal });

export const searchImage = (file, k, signal) =>
  call(`/search/image?k=${k}`, {
    method: "POST",
    // the service refuses a file that is no image with a sentence of its own
    headers: { "Content-Type": file.type.startsWith("image/") ? file.type : "image/unknown" },
    body: file,
    signal,
  });
