// The documents that a conversation's questions may use: a text per side, with a pattern in each line.

import { html, useState } from "./html.js";
import { line } from "./text.js";

export const ALL = { device: "", cloud: "" }; // no pattern: every document

const SIDES = [
  ["device", "This device’s documents", "these lines stay on this device"],
  ["cloud", "The cloud’s documents", "these lines are sent to the cloud"],
];

/** The request's fields; those of a side without patterns are left out. */
export function documentFields(chosen) {
  const fields = {};
  for (const [side] of SIDES) {
    const patterns = patternsOf(chosen, side);
    if (patterns.length) fields[`${side}_documents`] = patterns;
  }
  return fields;
}

/** What is chosen, in words; empty where nothing is. */
export function inWords(chosen) {
  const parts = SIDES.map(([side, name]) => [name, patternsOf(chosen, side)]).filter(([, found]) => found.length);
  return parts.map(([name, found]) => `${name} only: ${found.map(line).join(", ")}.`).join(" ");
}

/** The patterns as they are written, and told of by `onChoose` when that is done. */
export function ChosenDocuments({ chosen, onChoose }) {
  const [texts, setTexts] = useState(chosen);
  return html`<fieldset class="chosen">
    <legend>Documents that this conversation’s questions may use</legend>
    ${SIDES.map(
      ([side, name, stays]) =>
        html`<label>
          <span>${name} <small>(${stays})</small></span>
          <textarea
            rows="2"
            spellcheck="false"
            autocapitalize="off"
            placeholder="all"
            value=${texts[side]}
            onInput=${(event) => setTexts({ ...texts, [side]: event.currentTarget.value })}
            onChange=${() => onChoose(texts)}
          ></textarea>
        </label>`,
    )}
    <p class="hint">
      Write one per line: a folder or file as the library shows it, <code>journal/2026</code>, <code>*.pdf</code>, or
      <code>tag:work</code>. Each line must match a document.
    </p>
  </fieldset>`;
}

function patternsOf(chosen, side) {
  return chosen[side]
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean);
}
