// The device's library: what is in it, what is being read, adding, removing, searching.

import { html, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { Folders } from "./folders.js";
import { patiently } from "./patience.js";
import { usePolling } from "./polling.js";
import { Search } from "./search.js";
import { bytes, count, line, seen } from "./text.js";

const BUSY_PAUSE = 1000; // milliseconds between looks while something is read
const IDLE_PAUSE = 10000;
const EAGER = 15000; // milliseconds after a change in which the reading of it may begin

export function Library({ paused }) {
  const eager = useRef(0);
  const pause = (value) =>
    Date.now() < eager.current || value?.readings.some((reading) => reading.running) ? BUSY_PAUSE : IDLE_PAUSE;
  const { value, problem, refresh: look } = usePolling("library", pause, !paused);
  const refresh = () => {
    eager.current = Date.now() + EAGER;
    look();
  };
  return html`
    <div class="library">
      <h1>Library</h1>
      <p class="lead">What this device answers from. Its texts stay here; the cloud never gets them.</p>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <${Adding} refresh=${refresh} />
      ${value && html`<${Folders} library=${value} refresh=${refresh} />`}
      <${Search} />
      ${value && html`<${Documents} documents=${value.documents} refresh=${refresh} />`}
    </div>
  `;
}

function Adding({ refresh }) {
  const [results, setResults] = useState([]);
  const [over, setOver] = useState(false);
  const [left, setLeft] = useState(0);
  const [waiting, setWaiting] = useState(false);
  const input = useRef(null);
  const add = async (files) => {
    setResults([]);
    setLeft(files.length);
    for (const file of files) {
      let told;
      try {
        const path = `library/documents?name=${encodeURIComponent(file.name)}`;
        const answer = await patiently(() => ask("POST", path, { body: file }), setWaiting);
        told = { name: answer.name, text: `${bytes(answer.bytes)}, read next`, ok: true };
      } catch (error) {
        told = { name: file.name, text: error.message, ok: false };
      }
      setResults((known) => [...known, told]);
      setLeft((number) => number - 1);
      refresh();
    }
  };
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    add([...event.dataTransfer.files]);
  };
  return html`
    <section
      class=${`adding ${over ? "over" : ""}`}
      aria-label="Add documents"
      aria-busy=${left > 0 ? "true" : "false"}
      onDragOver=${(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave=${() => setOver(false)}
      onDrop=${onDrop}
    >
      <p>
        Drop files here, or${" "}
        <button type="button" class="link" onClick=${() => input.current.click()}>choose files</button>.
      </p>
      <input
        type="file"
        multiple
        hidden
        ref=${input}
        aria-label="Files to add"
        onChange=${(event) => {
          add([...event.currentTarget.files]);
          event.currentTarget.value = "";
        }}
      />
      <div role="status">
        ${left > 0 && html`<p>${waiting ? "Waiting for the library" : "Adding"}, ${count(left, "file")} to go …</p>`}
        <ul class="results">
          ${results.map(
            ({ name, text, ok }) =>
              html`<li class=${ok ? "" : "problem"}><bdi>${line(name)}</bdi>: ${ok ? line(text) : seen(text)}</li>`,
          )}
        </ul>
      </div>
    </section>
  `;
}

function Documents({ documents, refresh }) {
  const [problem, setProblem] = useState(null);
  const [waiting, setWaiting] = useState(false);
  const heading = useRef(null);
  const roots = new Set(documents.map((each) => each.root)).size;
  const remove = async (document) => {
    if (!confirm(`Remove “${line(document.title)}” from the library?`)) return;
    setProblem(null);
    try {
      await patiently(() => ask("DELETE", `library/documents/${encodeURIComponent(document.id)}`), setWaiting);
    } catch (error) {
      setProblem(error.message);
    }
    refresh();
    heading.current.focus();
  };
  return html`
    <section aria-labelledby="documents-title">
      <h2 id="documents-title" tabindex="-1" ref=${heading}>${count(documents.length, "document")}</h2>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <div role="status">${waiting && html`<p class="hint">The library is being changed; waiting …</p>`}</div>
      ${
        documents.length === 0
          ? html`<p>The library is empty. Drop a file above, or add a folder.</p>`
          : html`<div class="scrolls" tabindex="0" role="region" aria-label="Table of documents">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Title</th>
                    <th scope="col">Path</th>
                    <th scope="col" class="number">Passages</th>
                    <th scope="col" class="number">Size</th>
                    <th scope="col"><span class="unseen">Actions</span></th>
                  </tr>
                </thead>
                <tbody>
                  ${documents.map(
                    (each) =>
                      html`<tr key=${each.id}>
                        <th scope="row"><bdi>${line(each.title)}</bdi></th>
                        <td class="path">
                          <bdi>${line(each.path)}</bdi>
                          ${roots > 1 && html`<small><bdi>${line(each.root)}</bdi></small>`}
                        </td>
                        <td class="number">${each.chunks}</td>
                        <td class="number">${bytes(each.bytes)}</td>
                        <td>
                          <button
                            type="button"
                            class="quiet"
                            aria-label=${`Remove ${line(each.title)}`}
                            onClick=${() => remove(each)}
                          >
                            Remove
                          </button>
                        </td>
                      </tr>`,
                  )}
                </tbody>
              </table>
            </div>`
      }
    </section>
  `;
}
