// Where questions are written, with what holds for the next one.

import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { ALL, ChosenDocuments, inWords } from "./chosen.js";
import { keep, kept } from "./tab.js";
import { sends } from "./typing.js";

const SOURCES = [
  ["", "both libraries"],
  ["device", "this device only"],
  ["cloud", "the cloud only"],
];
// From the loosest on.
const PRIVACY = [
  ["balanced", "balanced: probabilities leave, too, and reveal something of your documents"],
  ["strict", "strict: the question and the answer leave"],
  ["secret", "secret: the same, and this device alone draws the answer"],
  ["offline", "offline: nothing leaves"],
];
const UNKEPT = "This browser does not save conversations: they are lost when you close this page.";
const CHOICES = "dragon.choices"; // what this tab keeps of them

/** The choices that this tab has kept: browsers load a page again by themselves, and none may be lost by that. */
export function keptChoices() {
  return { sources: "", privacy: "", pipeline: false, ...JSON.parse(kept(CHOICES)) };
}

export function keepChoices(choices) {
  keep(CHOICES, JSON.stringify(choices));
}

/** The fields of a request that the choices stand for; `level` is the privacy that the daemon is set to. */
export function requestFields({ sources, privacy, pipeline }, level) {
  const own = levels(level).some(([name]) => name === privacy) ? privacy : "";
  return { ...(sources && { sources }), ...(own && { privacy: own }), ...(pipeline && { trace: true }) };
}

export function Composer({ field, busy, level, choices, onChoose, chosen, conversation, ...rest }) {
  const { unkept, onDocuments, onAsk, onStop } = rest;
  const [text, setText] = useState("");
  const [choosing, setChoosing] = useState(false);
  const stop = useRef(null);
  const onStopButton = stop.current !== null && stop.current === document.activeElement;
  useLayoutEffect(() => {
    if (onStopButton && !busy) field.current.focus(); // it vanishes with the end of the answer
  });
  const send = (event) => {
    event.preventDefault();
    if (!text.trim() || busy) return;
    onAsk(text.trim());
    setText("");
  };
  const narrowed = inWords(chosen);
  const useAll = () => {
    field.current.focus(); // what was pressed vanishes
    onDocuments(ALL);
    setChoosing(false);
  };
  return html`
    <form class="composer" aria-label="Ask" onSubmit=${send}>
      ${unkept && html`<p class="hint" role="status">${UNKEPT}</p>`}
      <div class="field">
        <label class="unseen" for="question">Question</label>
        <textarea
          id="question"
          ref=${field}
          rows="2"
          placeholder="Ask about your documents, or drop files here"
          value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
          onKeyDown=${(event) => sends(event) && send(event)}
        ></textarea>
        ${
          busy
            ? html`<button type="button" class="primary" key="stop" ref=${stop} onClick=${onStop}>Stop</button>`
            : html`<button type="submit" class="primary" key="ask" disabled=${!text.trim()}>Ask</button>`
        }
      </div>
      <div class="choices">
        <${Choice} name="sources" label="Sources" values=${SOURCES} choices=${choices} onChoose=${onChoose} />
        <${Choice} name="privacy" label="Privacy" values=${levels(level)} choices=${choices} onChoose=${onChoose} />
        <button
          type="button"
          class=${`expands ${narrowed ? "on" : ""}`}
          aria-expanded=${choosing ? "true" : "false"}
          onClick=${() => setChoosing(!choosing)}
        >
          Documents${narrowed ? ": chosen" : ""}
        </button>
        <button
          type="button"
          class="toggle"
          aria-pressed=${choices.pipeline ? "true" : "false"}
          onClick=${() => onChoose({ ...choices, pipeline: !choices.pipeline })}
        >
          Pipeline
        </button>
      </div>
      ${choosing && html`<${ChosenDocuments} key=${conversation} chosen=${chosen} onChoose=${onDocuments} />`}
      ${
        narrowed &&
        html`<p class="narrowed">
          <span>${narrowed}</span>
          <button type="button" class="quiet" onClick=${useAll}>Use all documents</button>
        </p>`
      }
    </form>
  `;
}

/** The privacy levels that a question may have, by name: `level`, which the daemon is set to, and stricter ones. */
function levels(level) {
  const own = PRIVACY.findIndex(([name]) => name === level);
  const setting = own < 0 ? "this daemon’s setting" : `${PRIVACY[own][1]} (this daemon’s setting)`;
  return [["", setting], ...PRIVACY.slice(own + 1)];
}

function Choice({ name, label, values, choices, onChoose }) {
  const offered = values.some(([value]) => value === choices[name]);
  return html`<label class="choice">
    <span>${label}</span>
    <select
      value=${offered ? choices[name] : ""}
      onChange=${(event) => onChoose({ ...choices, [name]: event.currentTarget.value })}
    >
      ${values.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}
