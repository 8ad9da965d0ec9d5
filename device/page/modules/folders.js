// Folders of the library: read once or watched, how far reading is, and what was left out.

import { html, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { useParts } from "./more.js";
import { patiently } from "./patience.js";
import { bytes, count, line, seen } from "./text.js";

export function Folders({ library, refresh }) {
  const [path, setPath] = useState("");
  const [problem, setProblem] = useState(null);
  const [waiting, setWaiting] = useState(false);
  const heading = useRef(null);
  const change = async (work) => {
    setProblem(null);
    try {
      await patiently(work, setWaiting);
    } catch (error) {
      setProblem(error.message);
      return false;
    } finally {
      refresh();
    }
    return true;
  };
  const add = async (event) => {
    event.preventDefault();
    const body = { path: path.trim() };
    if (body.path && (await change(() => ask("POST", "library/folders", { body })))) setPath("");
  };
  const remove = async (folder) => {
    if (!confirm(`Take the folder “${line(folder)}” and its documents out of the library?`)) return;
    await change(() => ask("DELETE", `library/folders?path=${encodeURIComponent(folder)}`));
    heading.current?.focus(); // what was pressed vanishes
  };
  const discard = async (name) => {
    if (!confirm(`Delete the uploaded file “${line(name)}”?`)) return;
    await change(() => ask("DELETE", `library/documents?name=${encodeURIComponent(name)}`));
    heading.current?.focus();
  };
  const running = new Set(library.readings.map((reading) => reading.root));
  const quiet = library.watched.filter((folder) => !running.has(folder));
  return html`
    <section aria-labelledby="folders-title">
      <h2 id="folders-title" tabindex="-1" ref=${heading}>Folders</h2>
      <form class="inline" onSubmit=${add}>
        <label for="folder">Folder on this device; it is read now and after every change</label>
        <input
          id="folder"
          type="text"
          autocomplete="off"
          spellcheck="false"
          value=${path}
          placeholder="/home/me/notes"
          onInput=${(e) => setPath(e.currentTarget.value)}
        />
        <button type="submit" disabled=${!path.trim()}>Add folder</button>
      </form>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <div role="status">${waiting && html`<p class="hint">Waiting for another change of the library …</p>`}</div>
      <ul class="folders">
        ${library.readings.map(
          (reading) =>
            html`<${Reading}
              key=${reading.root}
              reading=${reading}
              uploads=${library.uploads}
              onRemove=${remove}
              onDiscard=${discard}
            />`,
        )}
        ${quiet.map(
          (folder) =>
            html`<li key=${folder}>
              <p>
                <bdi>${line(folder)}</bdi> <span class="tag">watched</span>
                <${Removal} folder=${folder} uploads=${library.uploads} onRemove=${remove} />
              </p>
            </li>`,
        )}
      </ul>
    </section>
  `;
}

function Reading({ reading, uploads, onRemove, onDiscard }) {
  const { root, ended, done, total, path, place, running, watched, skipped } = reading;
  const [drawn, more] = useParts(skipped);
  return html`<li>
    <p>
      <bdi>${line(root)}</bdi> ${watched && html`<span class="tag">watched</span>`}
      ${watched && html`<${Removal} folder=${root} uploads=${uploads} onRemove=${onRemove} />`}
    </p>
    ${
      running
        ? html`<p class="progress">
            <progress
              value=${total ? done : undefined}
              max=${total || undefined}
              aria-label=${`Reading ${line(root)}`}
            ></progress>
            ${bytes(done)} of ${bytes(total)}${path && html`: <bdi>${line(path)}</bdi>${place && `, ${place}`}`}
          </p>`
        : html`<p class="hint">
            ${ended === null ? "Reading was interrupted." : `Read on ${new Date(1000 * ended).toLocaleString()}.`}
          </p>`
    }
    ${
      skipped.length > 0 &&
      html`<details>
        <summary>${count(skipped.length, "file")} left out</summary>
        <ul tabindex="-1">
          ${drawn.map(
            (file) =>
              html`<li key=${file.path}>
                <bdi>${line(file.path)}</bdi>: ${seen(file.reason)}
                <${Discarding} name=${uploadOf(file.path, uploads)} onDiscard=${onDiscard} />
              </li>`,
          )}
        </ul>
        ${more}
      </details>`
    }
  </li>`;
}

/** The name of the upload at `path`; null where it is none. */
function uploadOf(path, uploads) {
  const name = path.slice(uploads.length + 1);
  return path === `${uploads}/${name}` && !name.includes("/") ? name : null;
}

function Discarding({ name, onDiscard }) {
  if (name === null) return null;
  return html`<button
    type="button"
    class="quiet"
    aria-label=${`Delete upload ${line(name)}`}
    onClick=${() => onDiscard(name)}
  >
    Delete
  </button>`;
}

function Removal({ folder, uploads, onRemove }) {
  if (folder === uploads) return null; // it is read as long as there are any
  return html`<button
    type="button"
    class="quiet"
    aria-label=${`Remove folder ${line(folder)}`}
    onClick=${() => onRemove(folder)}
  >
    Remove
  </button>`;
}
