// The chat: conversations, turns, the composer, and the passage beside them.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { exported } from "./chats.js";
import { Composer, requestFields } from "./composer.js";
import { Passage } from "./passage.js";
import { Turn } from "./turn.js";
import { count, line } from "./text.js";

const NEAR = 80; // pixels from the end at which the view follows the answer
const ABOVE = 16; // pixels above a finished one
const EXPORTING = 60000; // milliseconds; some browsers read what is downloaded in a later task

export function Chat({ chats, choices, onChoose, status, onView, hidden }) {
  const [cited, setCited] = useState(null); // {source, from}
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
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller.current;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  // What is pressed may vanish with the answer that it belongs to, and would take the keyboard's place with it.
  const back = () => field.current.focus();
  const ask = (question, place = null, fields = {}) => {
    follows.current = true;
    back();
    chats.ask(question, requestFields(choices), place, fields, status?.privacy);
  };
  const stop = () => {
    back();
    chats.stop();
  };
  const close = () => {
    cited.from.focus();
    setCited(null);
  };
  const cite = (source, from) => {
    follows.current = false;
    setCited({ source, from });
  };
  return html`
    <div class=${`chat ${cited ? "with-panel" : ""}`} hidden=${hidden}>
      <${Conversations} chats=${chats} listed=${listed} onListed=${setListed} onRemoved=${back} />
      <section class="talk" aria-label="Conversation">
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
        <${Composer}
          field=${field}
          busy=${Boolean(live)}
          choices=${choices}
          onChoose=${onChoose}
          chosen=${chats.chosen}
          conversation=${current?.id}
          unkept=${chats.unkept}
          onDocuments=${(chosen) => chats.choose(chosen)}
          onAsk=${ask}
          onStop=${stop}
        />
      </section>
      ${cited && html`<${Passage} source=${cited.source} onClose=${close} />`}
    </div>
  `;
}

function Welcome({ status, onView }) {
  return html`<div class="welcome">
    <h1>Ask your documents, and the cloud’s</h1>
    <p>
      Two libraries answer together. Yours stays on this device: the cloud learns the question and the answer, never a
      document as a whole; an answer may quote one. Every part of an answer shows where it comes from:${" "}
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

function Conversations({ chats, listed, onListed, onRemoved }) {
  const { conversations, current } = chats;
  const choose = (conversation) => {
    chats.select(conversation);
    onListed(false);
  };
  const remove = (conversation) => {
    if (!confirm(`Delete “${line(conversation.title)}”? It is kept nowhere else.`)) return;
    chats.remove(conversation);
    onRemoved();
  };
  return html`
    <nav class=${`conversations ${listed ? "listed" : ""}`} aria-label="Conversations">
      <div class="top">
        <button type="button" class="new" onClick=${() => choose(null)}>New conversation</button>
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
