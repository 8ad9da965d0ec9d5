// The API key, in this tab until that is closed.

import { keep, kept } from "./tab.js";

const KEY = "dragon.key";
const SENDABLE = /^[\x20-\x7e\xa0-\xff]+$/; // what a header can carry
const listeners = new Set();
let key = kept(KEY);

/** Use the key that the address's fragment brings, and take it out of the address. */
export function takeKey() {
  const found = /^#key=(.+)$/s.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  setKey(decoded(found[1]));
  listeners.forEach((listener) => listener(false));
}

/** Use this key from now on; false, and there is none, where it can't be sent and so is nobody's. */
export function setKey(text) {
  key = SENDABLE.test(text) ? text : null;
  keep(KEY, key);
  return key !== null;
}

/** The headers of a request that show the key. */
export function keyHeaders() {
  return key === null ? {} : { authorization: `Bearer ${key}` };
}

/** Tell that the daemon wants a key that it was not given. */
export function wantKey() {
  listeners.forEach((listener) => listener(true));
}

/** Call `listener` with whether a key is wanted, whenever that may have changed; returns how to stop that. */
export function onKeyWanted(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
