// What the daemon finds right or wrong with itself, and what to do, as `dragon doctor` has it.

import { html, useEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { count, seen } from "./text.js";

const LEVELS = { wrong: ["✕", "wrong"], warn: ["!", "look at this"], ok: ["✓", "fine"] };

export function Doctor() {
  const [findings, setFindings] = useState(null);
  const [problem, setProblem] = useState(null);
  const [looking, setLooking] = useState(false);
  const running = useRef(null);
  const look = async () => {
    const controller = (running.current = new AbortController());
    setLooking(true);
    setProblem(null);
    try {
      setFindings((await ask("GET", "doctor", { signal: controller.signal })).findings);
    } catch (error) {
      if (!controller.signal.aborted) setProblem(error.message);
    }
    setLooking(false);
  };
  useEffect(() => {
    look();
    return () => running.current.abort();
  }, []);
  const troubles = (findings ?? []).filter(({ level }) => level !== "ok");
  const fine = (findings ?? []).filter(({ level }) => level === "ok");
  return html`
    <section class="doctor" aria-labelledby="doctor-title" aria-busy=${looking ? "true" : "false"}>
      <header>
        <h3 id="doctor-title">Diagnosis</h3>
        <button type="button" class="quiet" disabled=${looking} onClick=${look}>
          ${looking ? "Looking …" : "Look again"}
        </button>
      </header>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      ${findings && !troubles.length && html`<p>Nothing is wrong.</p>`}
      <${Findings} findings=${troubles} />
      ${
        fine.length > 0 &&
        html`<details>
          <summary>${count(fine.length, "check")} passed</summary>
          <${Findings} findings=${fine} />
        </details>`
      }
    </section>
  `;
}

function Findings({ findings }) {
  return html`<ul class="findings">
    ${findings.map(({ level, topic, text, remedy }) => {
      const [sign, words] = LEVELS[level];
      return html`<li class=${level}>
        <span class="sign" aria-hidden="true">${sign}</span>
        <p>
          <strong>${topic}</strong><span class="unseen">, ${words}:</span> ${worded(text)}
          ${remedy && html`<span class="remedy">→ ${worded(remedy)}</span>`}
        </p>
      </li>`;
    })}
  </ul>`;
}

/** Text with what stands between backquotes, such as commands, as code. */
function worded(text) {
  return seen(text)
    .split("`")
    .map((part, number) => (number % 2 ? html`<code>${part}</code>` : part));
}
