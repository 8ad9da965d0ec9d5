// What this tab keeps until it is closed, also over a reload. Where the browser keeps no data of sites, nothing.

/** The text that is kept by this name, or null. */
export function kept(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text by this name; null: nothing any more. */
export function keep(name, text) {
  try {
    if (text === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, text);
  } catch {
    // It lasts as long as the page.
  }
}
