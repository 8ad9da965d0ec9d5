// Keys pressed in a field for questions.

const COMPOSING = 229; // code of a key that an input method takes; Safari tells of the last one by it alone

/** Whether a key press sends what is written: Enter, but not the one that ends a composed word. */
export function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !composes(event);
}

/** Whether a key press leaves what is written: Escape, but not the one that takes a composed word back. */
export function leaves(event) {
  return event.key === "Escape" && !composes(event);
}

function composes(event) {
  return event.isComposing || event.keyCode === COMPOSING;
}
