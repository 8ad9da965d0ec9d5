// Long lists, drawn in parts: all of a large library would take the browser seconds at each look.

import { html, useState } from "./html.js";

const PART = 200; // entries

/** The entries of `list` that are drawn, and the button, to stand right behind the list, that shows more of them. */
export function useParts(list) {
  const [most, setMost] = useState(PART);
  const next = Math.min(PART, list.length - most);
  const onClick = (event) => {
    if (list.length <= most + PART) event.currentTarget.previousElementSibling.focus(); // it vanishes
    setMost(most + PART);
  };
  const more =
    next > 0 &&
    html`<button type="button" class="more" onClick=${onClick}>Show ${next} more of ${list.length}</button>`;
  return [list.slice(0, most), more];
}
