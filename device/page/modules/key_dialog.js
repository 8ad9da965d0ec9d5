// Asks for the API key where the daemon wants one.

import { html, useEffect, useRef, useState } from "./html.js";
import { setKey } from "./api.js";

export function KeyDialog({ onKey }) {
  const dialog = useRef(null);
  const [key, setValue] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const take = (event) => {
    event.preventDefault();
    setKey(key.trim());
    onKey();
  };
  return html`
    <dialog ref=${dialog} aria-labelledby="key-title" onCancel=${(event) => event.preventDefault()}>
      <form onSubmit=${take}>
        <h2 id="key-title">This daemon wants its API key</h2>
        <p>It is the setting <code>api_key</code> of the device daemon. This tab keeps it until it is closed.</p>
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          value=${key}
          onInput=${(e) => setValue(e.currentTarget.value)}
        />
        <p class="actions"><button type="submit" class="primary" disabled=${!key.trim()}>Use this key</button></p>
      </form>
    </dialog>
  `;
}
