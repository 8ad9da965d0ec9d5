// A question with its answer, and what can be done with both.

import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { Answer } from "./answer.js";
import { copy } from "./copying.js";
import { Pipeline } from "./pipeline.js";
import { count, seen } from "./text.js";
import { leaves, sends } from "./typing.js";

const LONGER = 4; // times the tokens of an answer that was cut
const LEFT = "Left out of later questions: the conversation was too long.";
const OFFLINE = "Asked offline: later questions never send it to the cloud.";

export function Turn({ turn, number, last, live, busy, level, provisional, trace, onAsk, onCite }) {
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
    if (leaves(event)) {
      event.preventDefault(); // it ends no answer
      close();
    }
    if (sends(event)) send(event);
  };
  const name = `question-${number}`;
  const again = last && !live ? againOf(turn) : [];
  const [copied, setCopied] = useState("");
  const copyAnswer = async () => {
    setCopied("");
    setCopied((await copy(turn.answer)) ? "Copied" : "This browser does not allow copying.");
  };
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
              <p class="hint">The new answer replaces everything after this question.</p>
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
      ${turn.offline && level !== "offline" && html`<p class="hint">${OFFLINE}</p>`}
      ${turn.left && html`<p class="hint">${LEFT}</p>`}
      ${turn.chosen && html`<p class="hint">${seen(turn.chosen)}</p>`}
      ${turn.doubt && html`<p class="hint">${seen(turn.doubt)}</p>`}
      ${turn.answer && html`<${Answer} turn=${turn} provisional=${live ? provisional : ""} onCite=${onCite} />`}
      ${
        live &&
        !turn.answer &&
        html`<p class="thinking" dir="auto">${provisional ? seen(provisional) : "Reading …"}</p>`
      }
      ${turn.state === "stopped" && html`<p class="stopped">Stopped.</p>`}
      ${turn.state === "failed" && html`<p class="problem" role="alert">${seen(turn.error)}</p>`}
      ${turn.state === "done" && !turn.answer && html`<p class="stopped">The answer is empty.</p>`}
      ${isCut(turn) && html`<p class="stopped">The answer was cut after ${count(turn.report.tokens, "token")}.</p>`}
      ${
        !live &&
        (turn.answer || again.length > 0) &&
        html`<p class="actions">
          ${turn.answer && html`<button type="button" onClick=${copyAnswer}>Copy</button>`}
          ${again.map(
            ([label, fields]) =>
              html`<button
                type="button"
                disabled=${busy}
                onClick=${() => onAsk(turn.question, fields)}
              >
                ${label}
              </button>`,
          )}
          <span class="hint" role="status">${copied}</span>
        </p>`
      }
      ${trace && turn.report && html`<${Pipeline} report=${turn.report} trace=${trace} />`}
    </article>
  `;
}

function isCut(turn) {
  return turn.ending === "length" && Boolean(turn.report);
}

/** Ways to ask the same again, `[label, fields of the request]`: for the last turn only, as no other is lost then. */
function againOf({ state, ending, report, fields, offline, tooLong }) {
  const { shorten, ...own } = fields ?? {};
  const same = { ...own, ...(offline && { privacy: "offline" }) }; // whatever is chosen by now
  const ways = [];
  if (state === "failed" || state === "stopped") ways.push(["Try again", same]);
  if (tooLong) ways.push(["Leave out the oldest turns", { ...same, shorten: true }]);
  if (state === "done") ways.push(["Regenerate", same]);
  if (report?.refused) ways.push(["Answer anyway", { ...same, unmatched: "answer" }]);
  // Fewer than it was given: the daemon's own limit has cut it, and would again.
  if (isCut({ ending, report }) && report.tokens >= (fields?.max_tokens ?? 0)) {
    const more = LONGER * report.tokens;
    ways.push([`Ask for ${more} tokens`, { ...same, max_tokens: more }]);
  }
  return ways;
}
