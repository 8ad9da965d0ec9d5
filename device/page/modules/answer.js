// One answer: its text, coloured by where each part comes from, with footnotes.

import { html, useMemo } from "./html.js";
import { footnotesOf, partsOf } from "./attribution.js";
import { Block, blocks } from "./markdown.js";
import { count, line, percent, seconds, bytes, seen } from "./text.js";

const LONGEST_GLUED = 24; // characters of a word that stays on the line of its citation
const PLAIN = { both: "from both sides", model: "the model’s own words" };
const SIDES = { device: "this device", cloud: "the cloud" };

export function Answer({ turn, provisional, onCite }) {
  const { answer, report } = turn;
  const parts = useMemo(() => (report ? partsOf(answer, report) : []), [answer, report]);
  const notes = useMemo(() => (report ? footnotesOf(parts, report) : { cited: [], rest: [] }), [parts, report]);
  const paint = useMemo(() => (parts.length ? painter(answer, parts, notes, onCite) : null), [parts, notes]);
  return html`
    <div class="answer">
      ${blocks(answer).map(
        ({ kind, start, end }, number) =>
          html`<${Block}
            key=${number}
            kind=${kind}
            source=${answer.slice(start, end)}
            offset=${start}
            paint=${paint}
          />`,
      )}
      ${provisional && html`<p class="provisional" dir="auto">${seen(provisional)}</p>`}
    </div>
    ${report && html`<${Origins} parts=${parts} notes=${notes} report=${report} onCite=${onCite} />`}
  `;
}

/** The nodes of a range of `text` by its start and end; of one that is not shown only the marks in it. */
function painter(text, parts, notes, onCite) {
  const mark = (part) =>
    html`<${Citation} note=${notes.cited.find(({ index }) => index === part.source)} onCite=${onCite} />`;
  return (start, end, shown) =>
    shown ? painted(text, parts, mark, start, end) : parts.filter(({ note }) => note > start && note <= end).map(mark);
}

function painted(text, parts, mark, start, end) {
  const nodes = [];
  let place = start;
  for (const part of parts) {
    if (part.end <= start || part.start >= end) continue;
    const [from, to] = [Math.max(start, part.start), Math.min(end, part.end)];
    if (from > place) nodes.push(seen(text.slice(place, from)));
    const stop = part.note > from && part.note <= to ? part.note : null;
    const color = (content) => colored(seen(content), part.side);
    const words = text.slice(from, stop ?? to);
    const last = stop ? glueAt(words) : words.length;
    nodes.push(color(words.slice(0, last)));
    if (stop) {
      nodes.push(
        html`<span class="glued">${color(words.slice(last))}${mark(part)}</span>`,
        color(text.slice(stop, to)),
      );
    }
    place = to;
  }
  if (end > place) nodes.push(seen(text.slice(place, end)));
  return nodes;
}

/** `content` in the colours of `side`, but for the space before it. */
function colored(content, side) {
  const words = content.trimStart();
  if (!words || !(side in SIDES)) return content;
  return [content.slice(0, content.length - words.length), html`<span class=${`from ${side}`}>${words}</span>`];
}

/** Where the last word of `words` begins, or ends if it is too long to be kept in one line. */
function glueAt(words) {
  const begin = words.search(/\S*$/);
  return words.length - begin > LONGEST_GLUED ? words.length : begin;
}

function Citation({ note, onCite }) {
  const label = `Source ${note.number}: ${line(note.source.title)}, from ${SIDES[note.source.side]}`;
  return html`<sup
    ><button
      type="button"
      class=${`cite ${note.source.side}`}
      aria-label=${label}
      data-number=${note.number}
      onClick=${(event) => onCite(note, event.currentTarget)}
    ></button
  ></sup>`;
}

function Origins({ parts, notes, report, onCite }) {
  const sides = new Set(parts.map((part) => part.side));
  const plain = Object.keys(PLAIN).filter((side) => sides.has(side));
  const own = report.sources.length > 0 && sides.size === 1 && sides.has("model");
  return html`
    <div class="origins">
      ${
        parts.length > 0 &&
        html`<p class="legend">
          ${sides.has("device") && html`<span class="from device">from this device</span>`}
          ${sides.has("cloud") && html`<span class="from cloud">from the cloud</span>`}
          ${plain.length > 0 && html`<span>unmarked: ${plain.map((side) => PLAIN[side]).join(", or ")}</span>`}
        </p>`
      }
      ${
        notes.cited.length > 0 &&
        html`<ol class="footnotes" aria-label="Sources">
          ${notes.cited.map((note) => html`<li key=${note.index}><${Source} note=${note} onCite=${onCite} /></li>`)}
        </ol>`
      }
      ${
        notes.rest.length > 0 &&
        html`<details class="rest">
          <summary>${count(notes.rest.length, `${notes.cited.length ? "other " : ""}document`)} read</summary>
          <ul>
            ${notes.rest.map((note) => html`<li key=${note.index}><${Source} note=${note} onCite=${onCite} /></li>`)}
          </ul>
        </details>`
      }
      ${own && html`<p>No footnotes: this answer takes no words from the documents.</p>`}
      <${Notes} report=${report} />
    </div>
  `;
}

function Source({ note, onCite }) {
  const { side, title, place } = note.source;
  return html`<button type="button" class="source" onClick=${(event) => onCite(note, event.currentTarget)}>
      <bdi>${line(title)}</bdi></button
    >${place && html`<span class="place"> <bdi>${line(place)}</bdi></span>`}
    <span class=${`side ${side}`}>${side}</span>
    ${note.share > 0.005 && html`<span class="share">${percent(note.share)} of this answer</span>`}
    ${note.quotes.map((quote) => html`<${Quote} quote=${quote} />`)}`;
}

/** A span of the passage, and the names and numbers of it that the answer spells otherwise. */
function Quote({ quote }) {
  return html`<q class="quote" dir="auto">${line(quote.text)}</q>
    ${
      quote.differs.length > 0 &&
      html`<span class="differs">differs from the passage: <bdi>${line(quote.differs.join(", "))}</bdi></span>`
    }`;
}

function Notes({ report }) {
  const alone = report.degraded.length;
  const notes = [...report.notes];
  if (alone && alone < report.tokens) notes.push(`This device decided ${count(alone, "token")} alone.`);
  const figures = [
    count(report.tokens, "token"),
    `first after ${seconds(report.ttft)}`,
    `${seconds(report.seconds)} in all`,
  ];
  return html`
    ${
      notes.length > 0 &&
      html`<ul class="notes" aria-label="Notes">
        ${notes.map((note) => html`<li>${seen(note)}</li>`)}
      </ul>`
    }
    <p class="figures">${figures.join(" · ")}</p>
    <p class="figures">${report.sent_in_words}</p>
  `;
}
