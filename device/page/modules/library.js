// The device's library: what is in it, what is being read, adding, removing, searching.

import { html, useEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { Progress, useUploads } from "./arrivals.js";
import { Folders } from "./folders.js";
import { useParts } from "./more.js";
import { patiently } from "./patience.js";
import { usePolling } from "./polling.js";
import { Search } from "./search.js";
import { bytes, count, line, seen } from "./text.js";

const BUSY_PAUSE = 1000; // milliseconds between looks while something is read
const IDLE_PAUSE = 10000;
const EAGER = 15000; // milliseconds after a change in which the reading of it may begin
const GOING = "The file is deleted. The document leaves the library when the current change is done.";

export function Library({ uploads, paused }) {
  const eager = useRef(0);
  const pause = (value) =>
    Date.now() < eager.current || uploads.unread || value?.readings.some((reading) => reading.running)
      ? BUSY_PAUSE
      : IDLE_PAUSE;
  const { value, problem, refresh: look } = usePolling("library", pause, !paused);
  useEffect(() => {
    if (value) uploads.follow(value);
  }, [value]);
  const refresh = () => {
    eager.current = Date.now() + EAGER;
    look();
  };
  return html`
    <div class="library">
      <h1>Library</h1>
      <p class="lead">
        This device answers from these documents. They stay here. An answer may quote them, and the cloud sees every
        answer that it takes part in.
      </p>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <${Adding} uploads=${uploads} refresh=${refresh} />
      ${value && html`<${Folders} library=${value} refresh=${refresh} />`}
      <${Search} />
      ${value && html`<${Documents} documents=${value.documents} refresh=${refresh} />`}
    </div>
  `;
}

function Adding({ uploads, refresh }) {
  const [over, setOver] = useState(false);
  const input = useRef(null);
  const { results } = uploads;
  const left = uploads.left.length;
  useUploads(uploads);
  useEffect(() => {
    if (results.length) refresh();
  }, [results.length]);
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    uploads.drop(event.dataTransfer);
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
          uploads.add([...event.currentTarget.files]);
          event.currentTarget.value = "";
        }}
      />
      <${Progress} uploads=${uploads} />
    </section>
  `;
}

function Documents({ documents, refresh }) {
  const [problem, setProblem] = useState(null);
  const [waiting, setWaiting] = useState(false);
  const [going, setGoing] = useState([]); // documents whose files are gone, by id
  const heading = useRef(null);
  const [drawn, more] = useParts(documents);
  const roots = new Set(documents.map((each) => each.root)).size;
  const remove = async (document) => {
    if (!confirm(`Remove “${line(document.title)}” from the library?`)) return;
    setProblem(null);
    try {
      const path = `library/documents/${encodeURIComponent(document.id)}`;
      const { forgotten } = await patiently(() => ask("DELETE", path), setWaiting);
      if (!forgotten) setGoing((ids) => [...ids, document.id]);
    } catch (error) {
      setProblem(error.message);
    }
    refresh();
    heading.current?.focus();
  };
  return html`
    <section aria-labelledby="documents-title">
      <h2 id="documents-title" tabindex="-1" ref=${heading}>${count(documents.length, "document")}</h2>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <div role="status">
        ${waiting && html`<p class="hint">Waiting for another change of the library …</p>`}
        ${documents.some(({ id }) => going.includes(id)) && html`<p class="hint">${GOING}</p>`}
      </div>
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
                  ${drawn.map(
                    (each) =>
                      html`<tr key=${each.id}>
                        <th scope="row"><bdi>${line(each.title)}</bdi></th>
                        <td class="path">
                          <bdi>${line(each.path)}</bdi>
                          ${roots > 1 && html`<small><bdi>${line(each.root)}</bdi></small>`}
                          ${each.remarks.map((remark) => html`<small key=${remark}>${line(remark)}</small>`)}
                          <small class="narrow">${count(each.chunks, "passage")}, ${bytes(each.bytes)}</small>
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
            </div>${more}`
      }
    </section>
  `;
}
