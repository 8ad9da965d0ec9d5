// The page as a whole: header, views, and what they share.

import { html, useEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { onKeyWanted } from "./api_key.js";
import { Chat } from "./chat.js";
import { keepChoices, keptChoices } from "./composer.js";
import { KeyDialog } from "./key_dialog.js";
import { Library } from "./library.js";
import { LinkButton, LinkPanel } from "./link.js";
import { usePolling } from "./polling.js";
import { line, seen } from "./text.js";
import { Uploads } from "./uploads.js";

const STATUS_PAUSE = 5000; // milliseconds
const VIEWS = [
  ["chat", "Chat"],
  ["library", "Library"],
];

export function App({ chats }) {
  const [, redraw] = useState(0);
  const [view, setView] = useState("chat");
  const [choices, setChoices] = useState(keptChoices);
  const [linked, setLinked] = useState(false);
  const [wanted, setWanted] = useState(false);
  const [said, setSaid] = useState("");
  const [model, setModel] = useState(null); // its name
  const [uploads] = useState(() => new Uploads());
  const button = useRef(null);
  const announced = useRef(null);
  const status = usePolling("status", () => STATUS_PAUSE, !wanted);
  useEffect(() => chats.subscribe(() => redraw((number) => number + 1)), []);
  useEffect(() => onKeyWanted(setWanted), []);
  const identity = status.value?.model;
  useEffect(() => {
    if (!identity) return;
    const unknown = () => setModel(null); // the link's button says already what is wrong
    ask("GET", "v1/models").then(({ data }) => setModel(data.at(-1).id), unknown);
  }, [identity]);
  useEffect(() => {
    if (chats.live && said) setSaid(""); // so that the same answer again is announced again
    const turn = chats.finished;
    if (chats.live || !turn || announced.current === turn) return;
    announced.current = turn;
    if (turn.state === "done") setSaid(`Answer: ${seen(turn.answer)}`);
    else if (turn.state === "stopped") setSaid("The answer was stopped.");
  });
  const choose = (made) => {
    setChoices(made);
    keepChoices(made);
  };
  const closeLink = () => {
    setLinked(false);
    button.current?.querySelector("button")?.focus();
  };
  return html`
    <header class="bar">
      <p class="brand">dragon</p>
      ${model && html`<p class="model"><span class="unseen">Model: </span><bdi>${line(model)}</bdi></p>`}
      <nav aria-label="Views">
        ${VIEWS.map(
          ([name, label]) =>
            html`<button
              type="button"
              aria-current=${view === name ? "page" : undefined}
              onClick=${() => setView(name)}
            >
              ${label}
            </button>`,
        )}
      </nav>
      <div class="link-place" ref=${button}>
        <${LinkButton}
          status=${status.value}
          problem=${status.problem}
          code=${status.code}
          open=${linked}
          onOpen=${() => setLinked(!linked)}
        />
        ${
          linked &&
          html`<${LinkPanel}
            status=${status.value}
            problem=${status.problem}
            model=${model}
            choices=${choices}
            onClose=${closeLink}
          />`
        }
      </div>
    </header>
    <main>
      <${Chat}
        chats=${chats}
        choices=${choices}
        onChoose=${choose}
        status=${status.value}
        uploads=${uploads}
        onView=${setView}
        hidden=${view !== "chat"}
      />
      ${view === "library" && html`<${Library} uploads=${uploads} paused=${wanted} />`}
    </main>
    <p class="unseen" role="status" aria-live="polite">${said}</p>
    ${wanted && html`<${KeyDialog} onKey=${() => setWanted(false)} />`}
  `;
}
