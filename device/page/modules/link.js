// The link to the cloud: what it is like, and what is wrong with it.

import { html, useLayoutEffect, useRef } from "./html.js";
import { Doctor } from "./doctor.js";
import { count, line, milliseconds, seen } from "./text.js";

const SHORT = 12; // digits of a model's identity
const STATES = {
  connected: ["●", "connected"],
  connecting: ["◌", "connecting"],
  away: ["○", "away"],
  refused: ["✕", "refuses"],
  off: ["–", "not used"],
};
const EXACTNESS = {
  "bit-exact": "the same answer, bit by bit",
  rounded: "the same answer (last bits are rounded away)",
  near: "perhaps a different answer",
};

export function LinkButton({ status, problem, code, open, onOpen }) {
  const [sign, words] = problem
    ? code === "starting"
      ? ["◌", "starting"]
      : ["✕", "no daemon"]
    : status
      ? STATES[status.cloud.state]
      : ["◌", "…"];
  const rtt = !problem && status?.cloud.state === "connected" ? status.cloud.rtt_ms : null;
  return html`<button
    type="button"
    class=${`link-button ${problem ? "wrong" : (status?.cloud.state ?? "")}`}
    aria-expanded=${open ? "true" : "false"}
    onClick=${onOpen}
  >
    <span class="sign" aria-hidden="true">${sign}</span>
    <span class="wide">Cloud </span>${words}${rtt !== null && html` <small>${milliseconds(rtt)}</small>`}
  </button>`;
}

export function LinkPanel({ status, problem, model, choices, onClose }) {
  const heading = useRef(null);
  useLayoutEffect(() => heading.current.focus(), []);
  const onKey = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // it ends no answer
    onClose();
  };
  return html`
    <section
      class="link-panel"
      aria-labelledby="link-title"
      onKeyDown=${onKey}
    >
      <header>
        <h2 id="link-title" tabindex="-1" ref=${heading}>Link</h2>
        <button type="button" class="quiet" onClick=${onClose}>Close</button>
      </header>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      ${status && html`<${Facts} status=${status} model=${model} choices=${choices} />`}
      ${status && html`<${Doctor} />`}
    </section>
  `;
}

function Facts({ status, model, choices }) {
  const { cloud } = status;
  const facts = [
    ["Cloud", STATES[cloud.state][1]],
    ["Address", cloud.address || "none"],
    ["Round trip", milliseconds(cloud.rtt_ms)],
    ["Device’s model", `${model ? `${model}, ` : ""}${status.model.slice(0, SHORT)}`],
    ["Cloud’s model", cloud.model?.slice(0, SHORT) ?? "–"],
    ["A repeated question gets", EXACTNESS[status.exactness] ?? status.exactness],
    ["Library", `${count(status.documents, "document")}, ${count(status.chunks, "passage")}`],
    ["Answers", `${status.active} running, ${status.served} given`],
    ["Privacy", choices.privacy || status.privacy || "as the daemon is set"],
    ["Version", status.version],
  ];
  return html`
    ${cloud.detail && html`<p class="problem">${seen(cloud.detail)}</p>`}
    <dl>
      ${facts.map(
        ([name, value]) =>
          html`<div>
            <dt>${name}</dt>
            <dd><bdi>${line(value)}</bdi></dd>
          </div>`,
      )}
    </dl>
  `;
}
