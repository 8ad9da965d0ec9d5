// Where questions are written, with what holds for the next one.

import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { ALL, ChosenDocuments, inWords } from "./chosen.js";
import { keep, kept } from "./tab.js";
import { sends } from "./typing.js";

const SOURCES = [
  ["", "default"],
  ["both", "both libraries"],
  ["device", "this device only"],
  ["cloud", "the cloud only"],
];
const PRIVACY = [
  ["", "default"],
  ["secret", "secret: as strict, and only this device draws the answer"],
  ["strict", "strict: no number made of your documents leaves"],
  ["balanced", "balanced: distributions may leave; text can be read from them"],
  ["offline", "offline: nothing leaves"],
];
const UNKEPT = "This browser keeps no conversations: they last as long as this page.";
const CHOICES = "dragon.choices"; // what this tab keeps of them

/** The choices that this tab has kept: browsers load a page again by themselves, and none may be lost by that. */
export function keptChoices() {
  return { sources: "", privacy: "", pipeline: false, ...JSON.parse(kept(CHOICES)) };
}

export function keepChoices(choices) {
  keep(CHOICES, JSON.stringify(choices));
}

/** The fields of a request that the choices stand for. */
export function requestFields({ sources, privacy, pipeline }) {
  return { ...(sources && { sources }), ...(privacy && { privacy }), ...(pipeline && { trace: true }) };
}

export function Composer({ field, busy, choices, onChoose, chosen, conversation, unkept, onDocuments, onAsk, onStop }) {
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
          placeholder="Ask about your documents"
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
        <${Choice} name="privacy" label="Privacy" values=${PRIVACY} choices=${choices} onChoose=${onChoose} />
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

function Choice({ name, label, values, choices, onChoose }) {
  return html`<label class="choice">
    <span>${label}</span>
    <select value=${choices[name]} onChange=${(event) => onChoose({ ...choices, [name]: event.currentTarget.value })}>
      ${values.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}
