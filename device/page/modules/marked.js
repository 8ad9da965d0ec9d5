// A passage of the library: Markdown where readers of documents write it, else as it is. Quoted words are marked.

import { html, useMemo } from "./html.js";
import { Block, blocks } from "./markdown.js";
import { seen } from "./text.js";

const MARKDOWN = /\.(?:md|markdown|x?html?|mht(?:ml)?|docx|odt|epub|rtf|ipynb|pptx|odp)$/i;
const NONE = [];

export function Marked({ text, path, quotes = NONE }) {
  const ranges = useMemo(() => rangesOf(text, quotes), [text, quotes]);
  const paint = useMemo(() => (start, end, shown) => (shown ? painted(text, ranges, start, end) : null), [ranges]);
  if (!MARKDOWN.test(path ?? "")) return html`<div class="plain" dir="auto">${paint(0, text.length, true)}</div>`;
  return html`<div class="marked">
    ${blocks(text).map(
      ({ kind, start, end }) =>
        html`<${Block} key=${start} kind=${kind} source=${text.slice(start, end)} offset=${start} paint=${paint} />`,
    )}
  </div>`;
}

/** The places of quotes in `text` in order, `[start, end]`; white space may differ. */
export function rangesOf(text, quotes) {
  const found = [];
  for (const quote of quotes) {
    const words = quote.text.trim().split(/\s+/).map(escaped);
    const match = words[0] ? new RegExp(words.join("\\s+"), "u").exec(text) : null;
    if (match) found.push([match.index, match.index + match[0].length]);
  }
  return found.sort(([one], [other]) => one - other);
}

function painted(text, ranges, start, end) {
  const nodes = [];
  let place = start;
  for (const [first, last] of ranges) {
    const [from, to] = [Math.max(place, first), Math.min(end, last)];
    if (from >= to) continue;
    nodes.push(seen(text.slice(place, from)), html`<mark>${seen(text.slice(from, to))}</mark>`);
    place = to;
  }
  nodes.push(seen(text.slice(place, end)));
  return nodes;
}

function escaped(word) {
  return word.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
