// Files on their way into the library, one after the other, in whatever view. Then: what reading made of them.

import { ask } from "./api.js";
import { patiently } from "./patience.js";
import { bytes, count } from "./text.js";

const FOLDER = "This is a folder. Drop its files, or add the folder by its path in the library.";
const UNREADABLE = "The file can't be read: it has been changed or removed since it was chosen. Choose it again.";

export class Uploads {
  constructor() {
    this.results = []; // {name, text, ok, remarks, size}; `size` in bytes until the file has been read
    this.left = []; // files, the first of which is under way
    this.waiting = false; // for the library
    this.earlier = { names: new Set(), began: null }; // uploads that the library knew before, and their last reading
    this.listeners = new Set();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    this.listeners.forEach((listener) => listener());
  }

  /** Add what was dropped: of folders it is only told that they are. */
  drop(transfer) {
    const files = [];
    const folders = [];
    for (const item of transfer.items) {
      const entry = item.webkitGetAsEntry();
      if (entry?.isDirectory) folders.push(refusal(entry.name, FOLDER));
      else if (item.kind === "file") files.push(item.getAsFile());
    }
    this.add(files.filter(Boolean), folders); // there may be no file for what another program drags in
  }

  /** Whether a file was added that the library has not read yet. */
  get unread() {
    return this.results.some(({ size }) => size !== null);
  }

  /** Forget results. */
  clear() {
    this.results = [];
    this.changed();
  }

  /** Take from the library, as `GET library` shows it, what has become of files that were to be read. */
  follow({ documents, readings, uploads }) {
    const reading = readings.find(({ root }) => root === uploads);
    if (!reading || reading.running || !this.unread) return;
    const again = reading.began !== this.earlier.began;
    for (const result of this.results.filter(({ size }) => size !== null)) {
      if (!again && this.earlier.names.has(result.name)) continue; // what is known is of the file that it replaces
      const skipped = reading.skipped.find(({ path }) => path === `${uploads}/${result.name}`);
      const found = documents.find(
        ({ root, path, bytes: size }) => root === uploads && path === result.name && size === result.size,
      );
      if (skipped) Object.assign(result, { text: `not read: ${skipped.reason}`, ok: false, size: null });
      else if (found) {
        const text = `${bytes(found.bytes)}, ${count(found.chunks, "passage")} in the library`;
        Object.assign(result, { text, remarks: found.remarks, size: null });
      }
    }
    this.changed();
  }

  /** Add files behind those that are under way; `results` are told first. */
  async add(files, results = []) {
    const idle = !this.left.length;
    this.results = idle ? results : [...this.results, ...results];
    this.left.push(...files);
    this.changed();
    if (idle && files.length) await this.look();
    while (idle && this.left.length) {
      const result = await this.sent(this.left[0]);
      this.results.push(result);
      this.left.shift();
      this.changed();
    }
  }

  /** See what the library knows before files replace others. */
  async look() {
    const known = await ask("GET", "library").catch(() => null); // the file's own request says what is wrong
    if (!known) return;
    const reading = known.readings.find(({ root }) => root === known.uploads);
    const skipped = (reading?.skipped ?? []).map(({ path }) => path.slice(known.uploads.length + 1));
    const read = known.documents.filter(({ root }) => root === known.uploads).map(({ path }) => path);
    this.earlier = { names: new Set([...skipped, ...read]), began: reading?.began ?? null };
  }

  /** The result of one file. */
  async sent(file) {
    const onWait = (waiting) => {
      this.waiting = waiting;
      this.changed();
    };
    if (!(await readable(file))) return refusal(file.name, UNREADABLE);
    try {
      const path = `library/documents?name=${encodeURIComponent(file.name)}`;
      const { name, bytes: size, replaced } = await patiently(() => ask("POST", path, { body: file }), onWait);
      const instead = replaced ? "replaces the earlier file of this name, " : "";
      return { name, text: `${bytes(size)}, ${instead}read next`, ok: true, remarks: [], size };
    } catch (error) {
      return refusal(file.name, error.status || (await readable(file)) ? error.message : UNREADABLE);
    }
  }
}

function refusal(name, text) {
  return { name, text, ok: false, remarks: [], size: null };
}

/** Whether the browser can still read `file`: not if it has been changed since it was chosen. */
async function readable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}
