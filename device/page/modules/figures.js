// Figures by name.

import { html } from "./html.js";

/** A list of `figures`, pairs of a name and a value. */
export function Figures({ figures }) {
  return html`<dl class="facts">
    ${figures.map(
      ([name, value]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div>`,
    )}
  </dl>`;
}
