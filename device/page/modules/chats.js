// The conversations and the answer that is being written: state of the chat, without its looks.

import { stream } from "./api.js";
import { ALL, documentFields, inWords } from "./chosen.js";
import * as storage from "./storage.js";
import { count } from "./text.js";

const LONGEST_TITLE = 60;
const TOO_LONG = "context_length_exceeded"; // the daemon's code
const FRAME = 16; // milliseconds
const KEEP = 2000; // milliseconds between writings of an answer under way
const SEGMENTS = Intl.Segmenter && new Intl.Segmenter();

/**
 * A conversation is `{id, title, created, changed, turns, chosen}`, a turn `{id, question, fields, answer, ending,
 * doubt, state, report, error, tooLong, left, chosen, offline}` with state "waiting", "streaming", "done", "stopped" or
 * "failed". `chosen` are documents: of a conversation as they are written, of a turn in words. `fields` of the request
 * are those that only this question has, `ending` is the answer's `finish_reason`, `offline` tells that nothing of the
 * turn may leave the device, with later questions neither. `tooLong`: the conversation did not fit. `left`: later
 * questions leave the turn out. Traces are not kept: they are large. Other tabs may change what is kept; then a
 * conversation, and a turn that was asked here, stay the same objects.
 */
export class Chats {
  constructor() {
    this.conversations = [];
    this.current = null;
    this.unasked = ALL; // documents that are chosen for a conversation without questions yet
    this.live = null; // {turn, controller, conversation}, the last null until the turn is part of it
    this.asked = new Map(); // turns that were asked on this page, by id
    this.unkept = false; // whether the browser has refused to keep something
    this.finished = null; // the turn that ended last
    this.traces = new WeakMap(); // of turns
    this.provisional = ""; // text that may follow
    this.listeners = new Set();
    this.redraw = null; // timer
  }

  async load() {
    storage.onRefused(() => {
      this.unkept = true;
      this.changed();
    });
    storage.onOthers((id, kept) => {
      if (kept) this.adopt(kept);
      else this.drop(id);
      this.changed();
    });
    for (const conversation of await storage.load()) this.adopt(conversation);
    // One that another tab is writing is there again when that writes on.
    const broken = this.conversations.filter(({ turns }) => turns.some(isUnfinished));
    await Promise.all(broken.map((conversation) => this.change(conversation, end)));
    this.changed();
  }

  /** Take over what is kept of a conversation; returns it as it is on this page. */
  adopt(kept) {
    const turns = kept.turns.map((turn) => this.asked.get(turn.id) ?? turn);
    const conversation = Object.assign(this.conversations.find(({ id }) => id === kept.id) ?? kept, kept, { turns });
    const others = this.conversations.filter((each) => each !== conversation);
    this.conversations = [conversation, ...others].sort((one, other) => other.changed - one.changed);
    this.stopLost();
    return conversation;
  }

  drop(id) {
    this.forget(this.conversations.find((each) => each.id === id)?.turns ?? []);
    this.conversations = this.conversations.filter((each) => each.id !== id);
    if (this.current?.id === id) {
      this.current = null;
      this.unasked = ALL;
    }
    this.stopLost();
  }

  /** Let go of turns that are none any more. */
  forget(turns) {
    for (const turn of turns) if (turn !== this.live?.turn) this.asked.delete(turn.id);
  }

  /** Stop the answer that is being written if its place in the conversations is gone. */
  stopLost() {
    const { conversation, turn } = this.live ?? {};
    if (!conversation) return;
    if (!this.conversations.includes(conversation) || !conversation.turns.includes(turn)) this.stop();
  }

  /** Have `edit` change a conversation, here and where it is kept; null where it has been removed. */
  async change(conversation, edit) {
    const listed = this.conversations.includes(conversation);
    const kept = await storage.change(conversation, edit);
    const removed = listed && !this.conversations.includes(conversation); // meanwhile
    return kept && !removed ? this.adopt(kept) : null;
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    clearTimeout(this.redraw);
    this.redraw = null;
    this.listeners.forEach((listener) => listener());
  }

  /** Tell of changes once a frame, in a task of its own: tokens that come in a burst would else be drawn in one. */
  changedSoon() {
    this.redraw ??= setTimeout(() => this.changed(), FRAME);
  }

  /** Show another conversation; null for a new one. */
  select(conversation) {
    this.current = conversation;
    this.unasked = ALL;
    this.changed();
  }

  /** The documents that the current conversation's questions may use. */
  get chosen() {
    return (this.current ? this.current.chosen : this.unasked) ?? ALL;
  }

  choose(chosen) {
    if (this.current) {
      this.current.chosen = chosen;
      this.change(this.current, (conversation) => (conversation.chosen = chosen));
    } else this.unasked = chosen;
    this.changed();
  }

  remove(conversation) {
    this.drop(conversation.id);
    storage.remove(conversation.id);
    this.changed();
  }

  /**
   * Ask in the current conversation; at `place`, in place of that turn and all behind it. `fields` are the turn's,
   * `level` is the privacy that the daemon is set to; where it isn't known, nothing leaves. The request names it: a
   * daemon that is set otherwise by then refuses what is looser.
   */
  async ask(question, options, place, fields, level) {
    if (this.live) return;
    const { chosen } = this;
    const { shorten, ...own } = fields ?? {};
    const told = { privacy: level ?? "offline", ...documentFields(chosen), ...options, ...own };
    const turn = turnOf(question, fields, chosen, told.privacy === "offline");
    const controller = new AbortController();
    this.asked.set(turn.id, turn);
    this.live = { turn, controller, conversation: null };
    this.provisional = "";
    this.changed();
    const conversation = await this.added(turn, place, chosen);
    this.live.conversation = conversation;
    this.changed();
    const timer = setInterval(() => this.keep(turn, conversation), KEEP);
    do {
      turn.tooLong = false;
      const body = { model: "dragon", stream: true, messages: messagesOf(conversation), ...told };
      try {
        for await (const chunks of stream("v1/chat/completions", body, controller.signal)) {
          for (const chunk of chunks) this.take(turn, chunk);
          this.changedSoon();
        }
        turn.state = "done";
      } catch (error) {
        turn.state = controller.signal.aborted ? "stopped" : "failed";
        if (turn.state === "failed") turn.error = error.message;
        turn.tooLong = error.code === TOO_LONG && turnsBefore(conversation).length > 0;
      }
    } while (shorten && turn.tooLong && this.leaveOutOldest(conversation));
    clearInterval(timer);
    this.live = null;
    this.finished = turn;
    this.changed();
    this.keep(turn, conversation);
  }

  /** Later questions leave out the oldest turn; false where there is none. */
  leaveOutOldest(conversation) {
    const [oldest] = turnsBefore(conversation);
    if (!oldest) return false;
    oldest.left = true;
    this.keep(oldest, conversation);
    return true;
  }

  /** The current conversation with `turn` in it; a new one, with nothing else, where that has been removed. */
  async added(turn, place, chosen) {
    const now = Date.now();
    const before = this.current;
    const add = (conversation) => {
      end(conversation);
      if (place !== null) this.forget(conversation.turns.splice(place));
      conversation.turns.push(turn);
      conversation.changed = now;
      if (conversation.turns.length === 1) conversation.title = titleOf(turn.question);
    };
    const conversation = (before && (await this.change(before, add))) ?? (await this.change(begun(now, chosen), add));
    if (before && before !== conversation) this.drop(before.id);
    if (this.current === before || !this.current) this.current = conversation;
    return conversation;
  }

  /** Keep `turn` as it is now, wherever it still has its place. */
  async keep(turn, conversation) {
    if (!this.conversations.includes(conversation)) return;
    await this.change(conversation, ({ turns }) => {
      const place = turns.findIndex(({ id }) => id === turn.id);
      if (place >= 0) turns[place] = turn;
    });
    this.changed();
  }

  /** Keep what there is of an answer that is being written: the page may be closed at once. */
  keepNow() {
    const conversation = this.live?.conversation;
    if (this.conversations.includes(conversation)) storage.save(conversation);
  }

  stop() {
    this.live?.controller.abort();
  }

  take(turn, chunk) {
    const piece = chunk.choices[0]?.delta?.content ?? "";
    if (piece) {
      turn.answer += piece;
      turn.state = "streaming";
      this.provisional = "";
    }
    turn.ending = chunk.choices[0]?.finish_reason ?? turn.ending;
    if (chunk.dragon?.doubt) turn.doubt = chunk.dragon.doubt.sentence;
    if (chunk.dragon?.reading) {
      const { done, total } = chunk.dragon.reading;
      this.provisional = `Reading ${done} of ${count(total, "token")} …`;
    }
    if (chunk.dragon?.provisional !== undefined) this.provisional = chunk.dragon.provisional;
    else if (chunk.dragon?.pieces) {
      const { trace, ...report } = chunk.dragon;
      turn.report = report;
      if (trace) this.traces.set(turn, trace);
      this.provisional = "";
    }
  }
}

/** What is exported: conversations as they are kept, readable by other programs. */
export function exported(conversations) {
  return JSON.stringify({ format: "dragon conversations", version: 1, conversations }, null, 1);
}

function begun(now, chosen) {
  return { id: identity(now), title: "", created: now, changed: now, turns: [], chosen };
}

function turnOf(question, fields, chosen, offline) {
  const nothing = { answer: "", ending: null, doubt: null, state: "waiting", report: null, error: null };
  return { id: identity(Date.now()), question, fields, ...nothing, chosen: inWords(chosen), offline };
}

function identity(now) {
  return now.toString(36) + Math.random().toString(36).slice(2, 8);
}

/** End the answers that a page was closed over. */
function end(conversation) {
  for (const turn of conversation.turns.filter(isUnfinished)) turn.state = "stopped";
}

function isUnfinished({ state }) {
  return state === "waiting" || state === "streaming";
}

/** The turns that the last question follows: where it may leave the device, without those asked offline. */
function turnsBefore({ turns }) {
  const last = turns.at(-1);
  return turns.slice(0, -1).filter(({ answer, offline, left }) => answer && !left && (last.offline || !offline));
}

function messagesOf(conversation) {
  const last = conversation.turns.at(-1);
  return [
    ...turnsBefore(conversation).flatMap(({ question, answer }) => [
      { role: "user", content: question },
      { role: "assistant", content: answer },
    ]),
    { role: "user", content: last.question },
  ];
}

function titleOf(question) {
  const text = question.trim().replace(/\s+/g, " ");
  const signs = charactersOf(text);
  return signs.length > LONGEST_TITLE ? `${signs.slice(0, LONGEST_TITLE - 1).join("")}…` : text;
}

/** Characters as people see them, where the browser tells: an emoji may be many. */
function charactersOf(text) {
  return SEGMENTS ? Array.from(SEGMENTS.segment(text), ({ segment }) => segment) : [...text];
}
