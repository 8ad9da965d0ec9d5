// Asks for the API key where the daemon wants one.

import { html, useEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { setKey } from "./api_key.js";
import { seen } from "./text.js";

const NO_KEY = "The daemon does not accept this key.";

export function KeyDialog({ onKey }) {
  const dialog = useRef(null);
  const [key, setValue] = useState("");
  const [problem, setProblem] = useState(null);
  const open = () => dialog.current?.showModal(); // again where browsers let a second Escape close it all the same
  useEffect(open, []);
  const take = async (event) => {
    event.preventDefault();
    setProblem(null);
    if (!setKey(key.trim())) {
      setProblem(NO_KEY);
      return;
    }
    try {
      await ask("GET", "status");
      onKey();
    } catch (error) {
      setProblem(error.status === 401 ? NO_KEY : error.message);
    }
  };
  return html`
    <dialog
      ref=${dialog}
      aria-labelledby="key-title"
      onCancel=${(event) => event.preventDefault()}
      onClose=${open}
    >
      <form onSubmit=${take}>
        <h2 id="key-title">This daemon needs an API key</h2>
        <p>
          On its machine, <code>dragon api-keys create NAME</code> makes one. This tab keeps it until it is closed.
        </p>
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          value=${key}
          onInput=${(event) => setValue(event.currentTarget.value)}
        />
        ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
        <p class="actions"><button type="submit" class="primary" disabled=${!key.trim()}>Use this key</button></p>
      </form>
    </dialog>
  `;
}
