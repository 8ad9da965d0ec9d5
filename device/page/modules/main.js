// Start: the key from the address, the conversations from the browser, then the page.

import { html, render } from "./html.js";
import { takeKey } from "./api_key.js";
import { App } from "./app.js";
import { Chats } from "./chats.js";

takeKey();
addEventListener("hashchange", takeKey);
for (const kind of ["dragover", "drop"]) addEventListener(kind, refuseFiles);
const chats = new Chats();
await chats.load();
addEventListener("pagehide", () => chats.keepNow());
document.addEventListener("visibilitychange", () => document.hidden && chats.keepNow());
render(html`<${App} chats=${chats} />`, document.getElementById("app"));

/** Files that are dropped where nothing takes them would be opened in place of the page. */
function refuseFiles(event) {
  if (event.defaultPrevented || !event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = "none";
}
