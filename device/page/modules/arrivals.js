// Files that are added: how many are to go, and what became of each. Shown in the library and in the chat.

import { html, useEffect, useLayoutEffect, useState } from "./html.js";
import { usePolling } from "./polling.js";
import { count, line, seen } from "./text.js";

const PAUSE = 1000; // milliseconds between looks while a file is to be read

/** Redraws whenever an upload changes. */
export function useUploads(uploads) {
  const [, redraw] = useState(0);
  useLayoutEffect(() => uploads.subscribe(() => redraw((number) => number + 1)), []);
}

/** Progress and results, announced. `children` follow them. */
export function Progress({ uploads, children }) {
  const { results, waiting } = uploads;
  const left = uploads.left.length;
  return html`<div role="status">
    ${left > 0 && html`<p>${waiting ? "Waiting for the library" : "Adding"}, ${count(left, "file")} to go …</p>`}
    <ul class="results">
      ${results.map(
        ({ name, text, ok, remarks }) =>
          html`<li class=${ok ? "" : "problem"}>
            <bdi>${line(name)}</bdi>: ${ok ? line(text) : seen(text)}
            ${remarks.map((remark) => html`<small key=${remark}>${line(remark)}</small>`)}
          </li>`,
      )}
    </ul>
    ${children}
  </div>`;
}

/** The files that were dropped into the chat, until they are hidden. */
export function Arrivals({ uploads, onHide }) {
  useUploads(uploads);
  const { value } = usePolling("library", () => PAUSE, uploads.unread);
  useEffect(() => {
    if (value) uploads.follow(value);
  }, [value]);
  const { results, left } = uploads;
  if (!results.length && !left.length) return null;
  const hide = () => {
    uploads.clear();
    onHide();
  };
  return html`<section class="arrivals" aria-label="Added files" aria-busy=${left.length ? "true" : "false"}>
    <${Progress} uploads=${uploads} />
    ${!left.length && html`<button type="button" class="quiet" onClick=${hide}>Hide</button>`}
  </section>`;
}
