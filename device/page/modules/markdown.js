// A small subset of Markdown: paragraphs, headings, lists, bold, italics, code, code blocks, links.
// Parsing yields ranges of the source, rendering yields nodes; nothing is ever parsed as HTML.

import { html, Component } from "./html.js";
import { seen } from "./text.js";

const FENCE = /^ {0,3}(```+(?![^\n]*`)|~~~+)/; // one of backticks has none behind it, or it is code in a line
const ITEM = /^ {0,3}(?:[-*+]|(\d{1,9})[.)])[ \t]+/;
const HEADING = /^ {0,3}#{1,6}[ \t]+/;
const LINK = /\[([^\[\]\n]{1,200})\]\((https?:\/\/[^\s()<>]{1,1000})\)/y;
const DEEPEST = 4; // emphasis within emphasis

/** The blocks of `text`: `{kind, start, end}`, ranges of whole lines that cover all but blank ones between them. */
export function blocks(text) {
  const found = [];
  let open = null;
  let fence = null;
  for (const { start, end } of lines(text)) {
    const content = text.slice(start, end);
    if (fence) {
      open.end = end;
      if (closes(content, fence)) open = fence = null;
      continue;
    }
    const kind = kindOf(content, open);
    if (kind === null) open = null;
    else if (open?.kind === kind && kind !== "code" && kind !== "heading") open.end = end;
    else found.push((open = { kind, start, end }));
    fence = kind === "code" ? FENCE.exec(content)[1] : null;
  }
  return found;
}

/** A block by its source. Renders again only when that, or what is marked in it, changes. */
export class Block extends Component {
  shouldComponentUpdate(next) {
    return next.source !== this.props.source || next.paint !== this.props.paint || next.offset !== this.props.offset;
  }

  render({ kind, source, offset, paint }) {
    const leaf = (start, end, shown = true) =>
      paint ? paint(start + offset, end + offset, shown) : shown && seen(source.slice(start, end));
    const inside = (start, end) => inline(source, start, end, leaf, 0);
    if (kind === "code") {
      const [first, ...rest] = [...lines(source)];
      const last = rest.at(-1);
      const closed = last && closes(source.slice(last.start, last.end), FENCE.exec(source)[1]);
      const body = closed ? rest.slice(0, -1) : rest;
      const [start, end] = body.length ? [body[0].start, body.at(-1).end] : [first.end, first.end];
      return html`<pre tabindex="0"><code>${leaf(start, end)}</code></pre>`;
    }
    if (kind === "heading")
      return html`<p class="heading" dir="auto">${inside(HEADING.exec(source)[0].length, source.length)}</p>`;
    if (kind === "ul" || kind === "ol") {
      const items = itemsOf(source).map(({ start, end }) => html`<li dir="auto">${inside(start, end)}</li>`);
      const first = Number(ITEM.exec(source)[1] ?? 1);
      return kind === "ul"
        ? html`<ul>
            ${items}
          </ul>`
        : html`<ol start=${first}>
            ${items}
          </ol>`;
    }
    return html`<p dir="auto">${inside(0, source.length)}</p>`;
  }
}

function* lines(text) {
  for (let start = 0; start < text.length;) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? text.length : found;
    yield { start, end };
    start = end + 1;
  }
}

function kindOf(content, open) {
  if (!content.trim()) return null;
  if (FENCE.test(content)) return "code";
  if (HEADING.test(content)) return "heading";
  const item = ITEM.exec(content);
  if (item) return item[1] === undefined ? "ul" : "ol";
  return (open?.kind === "ul" || open?.kind === "ol") && /^\s/.test(content) ? open.kind : "p";
}

/** Whether a line ends the code that `fence` began: by nothing but the same sign, at least as often. */
function closes(content, fence) {
  const signs = content.trim();
  return signs.length >= fence.length && signs === fence[0].repeat(signs.length);
}

function itemsOf(source) {
  const items = [];
  for (const { start, end } of lines(source)) {
    const marker = ITEM.exec(source.slice(start, end));
    if (marker || !items.length) items.push({ start: start + (marker?.[0].length ?? 0), end });
    else items.at(-1).end = end;
  }
  return items;
}

function inline(source, start, end, leaf, depth) {
  const nodes = [];
  let plain = start;
  let at = start;
  const take = (node, from, to) => {
    if (from > plain) nodes.push(leaf(plain, from));
    nodes.push(node);
    plain = at = to;
  };
  while (at < end) {
    const sign = source[at];
    if (sign === "`") {
      const ticks = /`+/y;
      ticks.lastIndex = at;
      const [run] = ticks.exec(source);
      const close = closing(source, run, at + run.length, end);
      if (close < 0) at += run.length;
      else take(html`<code>${leaf(at + run.length, close)}</code>`, at, close + run.length);
    } else if ((sign === "*" || sign === "_") && depth < DEEPEST) {
      const { run, close } = emphasis(source, at, end);
      const begin = at + run.length;
      if (close < 0) at = begin;
      else {
        const children = inline(source, begin, close, leaf, depth + 1);
        const inner = run.length === 2 ? children : html`<em>${children}</em>`;
        take(run.length === 1 ? inner : html`<strong>${inner}</strong>`, at, close + run.length);
      }
    } else if (sign === "[") {
      LINK.lastIndex = at;
      const link = LINK.exec(source);
      const stop = at + (link?.[0].length ?? 0);
      if (!link || stop > end) at += 1;
      else {
        const label = at + 1 + link[1].length;
        take([anchor(leaf(at + 1, label), link[1], link[2]), leaf(label, stop, false)], at, stop);
      }
    } else at += 1;
  }
  if (end > plain) nodes.push(leaf(plain, end));
  return nodes;
}

/** A link that shows where it leads. */
function anchor(label, text, address) {
  const link = (content) => html`<a href=${address} target="_blank" rel="noopener noreferrer nofollow">${content}</a>`;
  return text === address ? link(label) : html`<span>${label} (${link(seen(address))})</span>`;
}

function closing(source, run, from, end) {
  for (let at = source.indexOf(run, from); at >= 0 && at + run.length <= end; at = source.indexOf(run, at)) {
    let stop = at;
    while (source[stop] === "`") stop += 1;
    if (stop - at === run.length) return at;
    at = stop;
  }
  return -1;
}

/** Signs of the emphasis that may begin at `at`, and where they come again to end it; -1: nowhere. */
function emphasis(source, at, end) {
  const sign = source[at];
  const both = sign.repeat(3);
  if (source.startsWith(both, at) && source[at + 3] !== sign) {
    const close = emphasisEnd(source, both, at, end);
    if (close >= 0) return { run: both, close };
  }
  const run = source[at + 1] === sign ? sign + sign : sign;
  return { run, close: emphasisEnd(source, run, at, end) };
}

function emphasisEnd(source, run, at, end) {
  const word = /[\p{L}\p{M}\p{N}]/u;
  const begin = at + run.length;
  if (begin >= end || /\s/.test(source[begin]) || (run[0] === "_" && word.test(source[at - 1] ?? ""))) return -1;
  for (let close = source.indexOf(run, begin + 1); close >= 0; close = source.indexOf(run, close + 1)) {
    if (close + run.length > end) return -1;
    const lonely = run.length > 1 || (source[close - 1] !== run && source[close + 1] !== run);
    const inWord = run[0] === "_" && word.test(source[close + run.length] ?? "");
    if (lonely && !inWord && !/\s/.test(source[close - 1])) return close;
  }
  return -1;
}
