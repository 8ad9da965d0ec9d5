// Requests to the daemon that served this page.

import { keyHeaders, wantKey } from "./api_key.js";

const BURST = 16; // events taken in one task
const waiting = []; // for tasks of their own
const tasks = new MessageChannel();
tasks.port1.onmessage = () => waiting.shift()();

/** A refusal or failure, in the daemon's own words where it has any. */
export class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The JSON of an answer. Throws ApiError. */
export async function ask(method, path, options = {}) {
  const response = await send(method, path, options);
  const text = await response.text().catch(() => {
    throw new ApiError("The connection to the device daemon was lost.");
  });
  return text ? JSON.parse(text) : null;
}

/** The JSON objects of a streamed answer, as they come. Throws ApiError. */
export async function* stream(path, body, signal) {
  const response = await send("POST", path, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw signal.aborted ? error : new ApiError("The connection to the device daemon was lost.");
    });
    if (done) throw new ApiError("The answer broke off: the connection was closed.");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    const found = [];
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const data = event.slice("data: ".length);
      if (data === "[DONE]") {
        yield found;
        return;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) {
        yield found;
        throw new ApiError(chunk.error.message, 0, chunk.error.code);
      }
      found.push(chunk);
      if (found.length === BURST) {
        yield found.splice(0);
        await nextTask();
      }
    }
    if (found.length) yield found;
    await nextTask();
  }
}

/** Lets the browser draw and take input first; not by a timer, which is slow in a tab in the background. */
function nextTask() {
  return new Promise((resume) => {
    waiting.push(resume);
    tasks.port2.postMessage(null);
  });
}

async function send(method, path, { body, signal } = {}) {
  const headers = keyHeaders();
  const raw = body instanceof Blob;
  if (body !== undefined) headers["content-type"] = raw ? "application/octet-stream" : "application/json";
  const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  if (body !== undefined) options.body = raw ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The device daemon can't be reached. Is it running?");
  }
  if (response.ok) return response;
  const refusal = await response.json().catch(() => null);
  if (response.status === 401) wantKey();
  const message = refusal?.error?.message ?? `The device daemon answered with status ${response.status}.`;
  throw new ApiError(message, response.status, refusal?.error?.code ?? null);
}
