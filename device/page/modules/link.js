// The link to the cloud: what it is like, and what is wrong with it.

import { html, useEffect, useRef } from "./html.js";
import { count, line, milliseconds, seen } from "./text.js";

const STATES = {
  connected: ["●", "Cloud connected"],
  connecting: ["◌", "Connecting"],
  away: ["○", "Cloud away"],
  refused: ["✕", "Cloud refuses"],
  off: ["–", "This device alone"],
};
const EXACTNESS = {
  "bit-exact": "bit by bit",
  rounded: "up to last bits, which are rounded away",
  near: "nearly: a repeated question may be answered differently",
};

export function LinkButton({ status, problem, open, onOpen }) {
  const [sign, words] = problem ? ["✕", "No daemon"] : status ? STATES[status.cloud.state] : ["◌", "Asking"];
  const rtt = !problem && status?.cloud.state === "connected" ? status.cloud.rtt_ms : null;
  return html`<button
    type="button"
    class=${`link-button ${problem ? "wrong" : (status?.cloud.state ?? "")}`}
    aria-expanded=${open ? "true" : "false"}
    onClick=${onOpen}
  >
    <span aria-hidden="true">${sign}</span> ${words}${rtt !== null && html` <small>${milliseconds(rtt)}</small>`}
  </button>`;
}

export function LinkPanel({ status, problem, choices, onClose }) {
  const heading = useRef(null);
  useEffect(() => heading.current.focus(), []);
  return html`
    <section class="link-panel" aria-labelledby="link-title" onKeyDown=${(event) => event.key === "Escape" && onClose()}>
      <header>
        <h2 id="link-title" tabindex="-1" ref=${heading}>Link</h2>
        <button type="button" class="quiet" onClick=${onClose}>Close</button>
      </header>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      ${status && html`<${Facts} status=${status} choices=${choices} />`}
    </section>
  `;
}

function Facts({ status, choices }) {
  const { cloud } = status;
  const facts = [
    ["Cloud", STATES[cloud.state][1]],
    ["Address", cloud.address || "none"],
    ["Round trip", milliseconds(cloud.rtt_ms)],
    ["Model here", status.model.slice(0, 12)],
    ["Model there", cloud.model?.slice(0, 12) ?? "–"],
    ["Numbers repeat", EXACTNESS[status.exactness] ?? status.exactness],
    ["Library", `${count(status.documents, "document")}, ${count(status.chunks, "passage")}`],
    ["Answers", `${status.active} running, ${status.served} given`],
    ["Privacy", choices.privacy || status.privacy || "as the daemon is set"],
    ["Version", status.version],
  ];
  return html`
    ${cloud.detail && html`<p class="problem">${seen(cloud.detail)}</p>`}
    <dl>
      ${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd><bdi>${line(value)}</bdi></dd></div>`)}
    </dl>
  `;
}
