// Text and figures as people read them.

// Controls, bidirectional overrides, invisible characters and tags: text that looks like another one.
const CONTROLS = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u2028\\u2029";
const DIRECTIONS = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";
const INVISIBLE = "\\u00ad\\u180e\\u200b\\u2060-\\u2065\\u206a-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}";
const UNSEEN = new RegExp(`[${CONTROLS}${DIRECTIONS}${INVISIBLE}]`, "gu");

/** Foreign text with every unseen character shown as a replacement character; its length stays. */
export function seen(text) {
  return String(text ?? "").replace(UNSEEN, (found) => "\ufffd".repeat(found.length));
}

/** Foreign text in one line, e.g. a title. */
export function line(text) {
  return seen(String(text ?? "").replace(/[\n\t]+/g, " "));
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  const [value, unit] = count < 1e6 ? [count / 1e3, "kB"] : count < 1e9 ? [count / 1e6, "MB"] : [count / 1e9, "GB"];
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 10 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`;
}

export function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}
