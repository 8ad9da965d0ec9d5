// Files on their way into the library, one after the other. They go on while nobody looks at the library.

import { ask } from "./api.js";
import { patiently } from "./patience.js";
import { bytes } from "./text.js";

const FOLDER = "This is a folder. Drop the files in it, or add it below by its path.";
const UNREADABLE = "The file can't be read: it has been changed or removed since it was chosen. Choose it again.";

export class Uploads {
  constructor() {
    this.results = []; // {name, text, ok}
    this.left = []; // files, the first of which is under way
    this.waiting = false; // for the library
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
      if (entry?.isDirectory) folders.push({ name: entry.name, text: FOLDER, ok: false });
      else if (item.kind === "file") files.push(item.getAsFile());
    }
    this.add(files.filter(Boolean), folders); // there may be no file for what another program drags in
  }

  /** Add files behind those that are under way; `results` are told first. */
  async add(files, results = []) {
    const idle = !this.left.length;
    this.results = idle ? results : [...this.results, ...results];
    this.left.push(...files);
    this.changed();
    while (idle && this.left.length) {
      const result = await this.sent(this.left[0]);
      this.results.push(result);
      this.left.shift();
      this.changed();
    }
  }

  /** The result of one file. */
  async sent(file) {
    const onWait = (waiting) => {
      this.waiting = waiting;
      this.changed();
    };
    const refusal = (text) => ({ name: file.name, text, ok: false });
    if (!(await readable(file))) return refusal(UNREADABLE);
    try {
      const path = `library/documents?name=${encodeURIComponent(file.name)}`;
      const { name, bytes: size, replaced } = await patiently(() => ask("POST", path, { body: file }), onWait);
      const instead = replaced ? "in place of the earlier file of this name, " : "";
      return { name, text: `${bytes(size)}, ${instead}read next`, ok: true };
    } catch (error) {
      return refusal(error.status || (await readable(file)) ? error.message : UNREADABLE);
    }
  }
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
