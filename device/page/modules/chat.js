// The chat: conversations, turns, the composer, and the passage beside them.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { exported } from "./chats.js";
import { Arrivals } from "./arrivals.js";
import { Composer, requestFields } from "./composer.js";
import { Passage } from "./passage.js";
import { Turn } from "./turn.js";
import { count, line } from "./text.js";
import { leaves } from "./typing.js";

const NEAR = 80; // pixels from the end at which the view follows the answer
const ABOVE = 16; // pixels above a finished one
const EXPORTING = 60000; // milliseconds; some browsers read what is downloaded in a later task

export function Chat({ chats, choices, onChoose, status, uploads, onView, hidden }) {
  const [cited, setCited] = useState(null); // {note, from}
  const [over, setOver] = useState(0); // elements that files are dragged over
  const [listed, setListed] = useState(false);
  const field = useRef(null); // for questions
  const scroller = useRef(null);
  const follows = useRef(true);
  const shown = useRef({}); // by the last rendering: {id, writing}
  const { current, live } = chats;
  useLayoutEffect(() => {
    if (hidden) return;
    const box = scroller.current;
    const before = shown.current;
    const now = { id: current?.id, writing: Boolean(current?.turns.includes(live?.turn)) };
    shown.current = now;
    const other = before.id !== now.id;
    // The page is drawn again at every look at the daemon's status, and whoever reads then is not to be moved.
    if (!other && (!follows.current || !(now.writing || before.writing))) return;
    const end = box.scrollHeight - box.clientHeight;
    const turn = box.querySelector(".turn:last-of-type");
    box.scrollTop = now.writing || !turn ? end : Math.min(end, turn.offsetTop - box.offsetTop - ABOVE);
  });
  useEffect(() => setCited(null), [current]);
  useEffect(() => {
    if (pointsFinely() && !document.querySelector("dialog[open]")) field.current.focus(); // no keyboard comes up for it
  }, []);
  useEffect(() => {
    // What had the keyboard may be gone with the answer; whoever moved it elsewhere keeps it there.
    if (!live && document.activeElement === document.body && pointsFinely()) field.current.focus();
  }, [live]);
  useEffect(() => {
    if (hidden || !live) return undefined;
    const onKey = (event) => {
      if (event.defaultPrevented || !leaves(event) || document.querySelector("dialog[open]")) return;
      back();
      chats.stop();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [live, hidden]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller.current;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  // What is pressed may vanish with the answer that it belongs to, and would take the keyboard's place with it.
  const back = () => field.current.focus();
  const ask = (question, place = null, fields = {}) => {
    follows.current = true;
    back();
    chats.ask(question, requestFields(choices, status?.privacy), place, fields, status?.privacy);
  };
  const stop = () => {
    back();
    chats.stop();
  };
  const close = () => {
    cited.from.focus();
    setCited(null);
  };
  const cite = (note, from) => {
    follows.current = false;
    setCited({ note, from });
  };
  const drop = (event) => {
    setOver(0);
    if (!carriesFiles(event)) return;
    event.preventDefault();
    uploads.drop(event.dataTransfer);
  };
  return html`
    <div class=${`chat ${cited ? "with-panel" : ""}`} hidden=${hidden}>
      <${Conversations} chats=${chats} listed=${listed} onListed=${setListed} onLeft=${back} />
      <section
        class="talk"
        aria-label="Conversation"
        onDragEnter=${(event) => carriesFiles(event) && setOver((number) => number + 1)}
        onDragOver=${(event) => carriesFiles(event) && event.preventDefault()}
        onDragLeave=${() => setOver((number) => Math.max(0, number - 1))}
        onDrop=${drop}
      >
        ${over > 0 && html`<p class="drop-here">Drop files to add them to this device’s library.</p>`}
        <div
          class="turns"
          ref=${scroller}
          onScroll=${onScroll}
          tabindex="0"
          role="region"
          aria-label="Questions and answers"
        >
          ${
            current
              ? html`<h1 class="unseen">${line(current.title)}</h1>
                  ${current.turns.map(
                    (turn, number) =>
                      html`<${Turn}
                        key=${`${current.id} ${number}`}
                        turn=${turn}
                        number=${number}
                        last=${number === current.turns.length - 1}
                        live=${live?.turn === turn}
                        busy=${Boolean(live)}
                        level=${status?.privacy}
                        provisional=${chats.provisional}
                        trace=${choices.pipeline ? chats.traces.get(turn) : null}
                        onAsk=${(question, fields) => ask(question, number, fields)}
                        onCite=${cite}
                      />`,
                  )}`
              : html`<${Welcome} status=${status} onView=${onView} />`
          }
        </div>
        ${!hidden && html`<${Arrivals} uploads=${uploads} onHide=${back} />`}
        <${Composer}
          field=${field}
          busy=${Boolean(live)}
          choices=${choices}
          onChoose=${onChoose}
          chosen=${chats.chosen}
          conversation=${current?.id}
          level=${status?.privacy}
          unkept=${chats.unkept}
          onDocuments=${(chosen) => chats.choose(chosen)}
          onAsk=${ask}
          onStop=${stop}
        />
      </section>
      ${
        cited && html`<${Passage} source=${cited.note.source} quotes=${cited.note.quotes} onClose=${close} />`
      }
    </div>
  `;
}

/** Whether somebody has a mouse, and so a keyboard that covers nothing of the page. */
function pointsFinely() {
  return matchMedia("(pointer: fine)").matches;
}

function carriesFiles(event) {
  return event.dataTransfer.types.includes("Files");
}

function Welcome({ status, onView }) {
  return html`<div class="welcome">
    <h1>Ask your documents, and the cloud’s</h1>
    <p>
      Two libraries answer together. Yours stays on this device. The cloud learns the question and the answer, never a
      whole document; but an answer may quote one. Every part of an answer shows its source:${" "}
      <span class="from device">from this device</span> or <span class="from cloud">from the cloud</span>.
    </p>
    ${
      status &&
      html`<p>
        ${
          status.documents
            ? `This device’s library has ${count(status.documents, "document")}. `
            : "This device’s library is empty. "
        }
        <button type="button" class="link" onClick=${() => onView("library")}>
          ${status.documents ? "Open the library" : "Add documents"}
        </button>
      </p>`
    }
  </div>`;
}

function Conversations({ chats, listed, onListed, onLeft }) {
  const { conversations, current } = chats;
  const choose = (conversation) => {
    chats.select(conversation);
    onListed(false);
  };
  const begin = () => {
    choose(null);
    onLeft();
  };
  const remove = (conversation) => {
    if (!confirm(`Delete “${line(conversation.title)}”? There is no other copy.`)) return;
    chats.remove(conversation);
    onLeft();
  };
  return html`
    <nav class=${`conversations ${listed ? "listed" : ""}`} aria-label="Conversations">
      <div class="top">
        <button type="button" class="new" onClick=${begin}>New conversation</button>
        <button
          type="button"
          class="quiet expander"
          aria-expanded=${listed ? "true" : "false"}
          onClick=${() => onListed(!listed)}
        >
          Earlier (${conversations.length})
        </button>
      </div>
      <div class="list">
        <ul>
          ${conversations.map(
            (each) =>
              html`<li key=${each.id} class=${each === current ? "current" : ""}>
                <button
                  type="button"
                  class="title"
                  aria-current=${each === current ? "true" : undefined}
                  onClick=${() => choose(each)}
                >
                  <bdi>${line(each.title)}</bdi>
                </button>
                <button
                  type="button"
                  class="quiet delete"
                  aria-label=${`Delete ${line(each.title)}`}
                  onClick=${() => remove(each)}
                >
                  ×
                </button>
              </li>`,
          )}
        </ul>
        ${
          conversations.length > 0 &&
          html`<button type="button" class="quiet" onClick=${() => download(conversations)}>Export all</button>`
        }
      </div>
    </nav>
  `;
}

function download(conversations) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported(conversations)], { type: "application/json" }));
  link.download = "dragon-conversations.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), EXPORTING);
}
