// Keys pressed in a field for questions.

const COMPOSING = 229; // code of a key that an input method takes; Safari tells of the last one by it alone

/** Whether a key press sends what is written: Enter, but not the one that ends a composed word. */
export function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== COMPOSING;
}
