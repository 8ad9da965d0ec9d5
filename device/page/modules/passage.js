// The panel beside the chat with the passage that a citation leads to.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { Marked } from "./marked.js";
import { line, seen } from "./text.js";

// Its passages are numbered anew.
const CHANGED = "The library has changed since this answer, so this passage can’t be shown.";

/** `quotes` are texts of the passage that the answer takes words from. */
export function Passage({ source, quotes, onClose }) {
  const [found, setFound] = useState(null);
  const heading = useRef(null);
  const panel = useRef(null);
  useLayoutEffect(() => heading.current.focus(), [source]);
  useEffect(() => {
    setFound(null);
    if (source.side === "cloud") return undefined;
    if (source.chunk === undefined || source.chunk === null) {
      setFound({ problem: "The report does not say where this passage is." });
      return undefined;
    }
    const controller = new AbortController();
    ask("GET", `library/passages/${encodeURIComponent(source.chunk)}`, { signal: controller.signal })
      .then((passage) => setFound(source.path && passage.path !== source.path ? { problem: CHANGED } : passage))
      .catch((error) => controller.signal.aborted || setFound({ problem: error.message }));
    return () => controller.abort();
  }, [source]);
  useLayoutEffect(() => {
    panel.current.querySelector("mark")?.scrollIntoView({ block: "center" });
  }, [found]);
  const onKey = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // it ends no answer
    onClose();
  };
  return html`
    <aside class="side-panel" ref=${panel} aria-labelledby="passage-title" onKeyDown=${onKey}>
      <header>
        <h2 id="passage-title" tabindex="-1" ref=${heading}><bdi>${line(source.title)}</bdi></h2>
        <button type="button" class="quiet" onClick=${onClose}>Close</button>
      </header>
      <p class="place">
        <span class=${`side ${source.side}`}>${source.side}</span>
        <bdi>${line([found?.path ?? source.path, found?.place ?? source.place].filter(Boolean).join(", "))}</bdi>
      </p>
      ${
        source.side === "cloud"
          ? html`<p>The text of this document is in the cloud. This device knows its title only.</p>`
          : found?.problem
            ? html`<p role="alert">${seen(found.problem)}</p>`
            : found
              ? html`<blockquote><${Marked} text=${found.text} path=${found.path} quotes=${quotes} /></blockquote>`
              : html`<p aria-busy="true">Opening …</p>`
      }
    </aside>
  `;
}
