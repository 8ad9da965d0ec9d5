// Conversations, kept in this browser's database and nowhere else.

const STORE = "conversations";
let database = null;

/** All that are kept, the latest first. Where the browser keeps nothing, they last as long as the page. */
export async function load() {
  try {
    database = await opened();
    const all = await done(database.transaction(STORE).objectStore(STORE).getAll());
    return all.sort((one, other) => other.changed - one.changed);
  } catch {
    return [];
  }
}

export async function save(conversation) {
  await written((store) => store.put(conversation));
}

export async function remove(id) {
  await written((store) => store.delete(id));
}

async function written(write) {
  try {
    if (database) await done(write(database.transaction(STORE, "readwrite").objectStore(STORE)));
  } catch {
    // The conversation stays on the page; there is nothing better to do without room on the disk.
  }
}

function opened() {
  const request = indexedDB.open("dragon", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
  return done(request);
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
