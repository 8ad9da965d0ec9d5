// Conversations, kept in this browser's database and nowhere else. Other tabs of this address keep theirs there, too.

const STORE = "conversations";
const kept = new Set(); // ids of conversations of which the database has all that this page has
let database = null;
let channel = null; // carries ids of conversations that a tab has changed or removed
let others = () => {};
let refused = () => {};

/** All that are kept, in no order. Where the browser keeps nothing, they last as long as the page. */
export async function load() {
  try {
    database = await done(opening());
    const all = await done(database.transaction(STORE).objectStore(STORE).getAll());
    all.forEach(({ id }) => kept.add(id));
    channel = new BroadcastChannel("dragon.conversations");
    channel.onmessage = ({ data: id }) => heard(id);
    return all;
  } catch {
    refused();
    return [];
  }
}

/** Call `listener` with the id of each conversation that another tab changes, and with it; null: it is removed. */
export function onOthers(listener) {
  others = listener;
}

/** Call `listener` when the browser refuses to keep something. */
export function onRefused(listener) {
  refused = listener;
}

/**
 * Have `edit` change what is kept of `conversation`, in one step with reading it, so that nothing is lost that other
 * tabs have added. Returns the conversation as it is then; null, without a change, where another tab has removed it.
 */
export async function change(conversation, edit) {
  const store = writable();
  const known = await current(store, conversation);
  if (known === null) return null;
  edit(known);
  written(store, known.id, () => store.put(known));
  return known;
}

/** Keep `conversation` as it is here, without a look at what is kept: for a page that has no time left. */
export function save(conversation) {
  const store = writable();
  written(store, conversation.id, () => atOnce(store.put(conversation)));
}

export function remove(id) {
  const store = writable();
  written(store, id, () => atOnce(store.delete(id)));
}

/** Else the browser waits for the page, and takes all back once that is gone. */
function atOnce({ transaction }) {
  transaction.commit();
}

/** What `store` has of a conversation; the conversation itself where the store never got it, or not all of it. */
async function current(store, conversation) {
  if (!store || !kept.has(conversation.id)) return conversation;
  try {
    return (await done(store.get(conversation.id))) ?? null;
  } catch {
    return conversation;
  }
}

function writable() {
  try {
    return database && database.transaction(STORE, "readwrite").objectStore(STORE);
  } catch {
    return null; // the browser has closed it
  }
}

/** The end of `write` into `store`: other tabs are told, or the refusal is. */
async function written(store, id, write) {
  try {
    write();
    await committed(store.transaction);
    kept.add(id);
    channel.postMessage(id);
  } catch {
    kept.delete(id);
    refused();
  }
}

/** Tell of what another tab has done. */
async function heard(id) {
  let found;
  try {
    found = (await done(database.transaction(STORE).objectStore(STORE).get(id))) ?? null;
  } catch {
    return; // what is on the page stays there
  }
  if (found) kept.add(id);
  others(id, found);
}

function opening() {
  const request = indexedDB.open("dragon", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
  return request;
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Space may run out at the very end of a transaction, after its requests have succeeded. */
function committed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}
