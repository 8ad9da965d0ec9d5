// A question with its answer, and what can be done with both.

import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { Answer } from "./answer.js";
import { Pipeline } from "./pipeline.js";
import { seen } from "./text.js";

export function Turn({ turn, number, live, busy, provisional, trace, onAsk, onCite }) {
  const [editing, setEditing] = useState(false);
  const [draft, setDraft] = useState("");
  const area = useRef(null);
  const edit = useRef(null);
  useLayoutEffect(() => {
    if (editing) area.current.focus();
  }, [editing]);
  const close = () => {
    setEditing(false);
    requestAnimationFrame(() => edit.current?.focus());
  };
  const send = (event) => {
    event.preventDefault();
    if (!draft.trim() || busy) return;
    setEditing(false);
    onAsk(draft.trim());
  };
  const onKey = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  const name = `question-${number}`;
  return html`
    <article class="turn" aria-labelledby=${name} aria-busy=${live ? "true" : "false"}>
      ${
        editing
          ? html`<form class="edit" onSubmit=${send}>
              <label class="unseen" for=${`${name}-edit`}>Question</label>
              <textarea
                id=${`${name}-edit`}
                ref=${area}
                rows="2"
                value=${draft}
                onInput=${(event) => setDraft(event.currentTarget.value)}
                onKeyDown=${onKey}
              ></textarea>
              <p class="hint">What comes after it in this conversation is replaced.</p>
              <p class="actions">
                <button type="submit" class="primary" disabled=${busy || !draft.trim()}>Ask again</button>
                <button type="button" onClick=${close}>Cancel</button>
              </p>
            </form>`
          : html`<div class="question">
              <p id=${name} dir="auto">${seen(turn.question)}</p>
              <button
                type="button"
                class="quiet"
                ref=${edit}
                disabled=${busy}
                onClick=${() => {
                  setDraft(turn.question);
                  setEditing(true);
                }}
              >
                Edit
              </button>
            </div>`
      }
      ${turn.chosen && html`<p class="hint">${seen(turn.chosen)}</p>`}
      ${turn.doubt && html`<p class="hint">${seen(turn.doubt)}</p>`}
      ${turn.answer && html`<${Answer} turn=${turn} provisional=${live ? provisional : ""} onCite=${onCite} />`}
      ${live && !turn.answer && html`<p class="thinking">${provisional ? seen(provisional) : "Reading …"}</p>`}
      ${turn.state === "stopped" && html`<p class="stopped">Stopped.</p>`}
      ${turn.state === "failed" && html`<p class="problem" role="alert">${seen(turn.error)}</p>`}
      ${turn.state === "done" && !turn.answer && html`<p class="stopped">The answer is empty.</p>`}
      ${
        (turn.state === "failed" || turn.state === "stopped") &&
        html`<p class="actions">
          <button type="button" disabled=${busy} onClick=${() => onAsk(turn.question)}>Try again</button>
        </p>`
      }
      ${
        turn.report?.refused &&
        html`<p class="actions">
          <button type="button" disabled=${busy} onClick=${() => onAsk(turn.question, { unmatched: "answer" })}>
            Answer anyway
          </button>
        </p>`
      }
      ${trace && turn.report && html`<${Pipeline} report=${turn.report} trace=${trace} />`}
    </article>
  `;
}
