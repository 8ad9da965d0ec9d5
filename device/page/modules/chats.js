// The conversations and the answer that is being written: state of the chat, without its looks.

import { stream } from "./api.js";
import { ALL, documentFields, inWords } from "./chosen.js";
import * as storage from "./storage.js";

const LONGEST_TITLE = 60;
const FRAME = 16; // milliseconds

/**
 * A conversation is `{id, title, created, changed, turns, chosen}`, a turn `{question, answer, doubt, state, report,
 * error, chosen}` with state "waiting", "streaming", "done", "stopped" or "failed". `chosen` are documents: of a
 * conversation as they are written, of a turn in words. Traces are not kept: they are large.
 */
export class Chats {
  constructor() {
    this.conversations = [];
    this.current = null;
    this.unasked = ALL; // documents that are chosen for a conversation without questions yet
    this.live = null; // {turn, controller}
    this.finished = null; // the turn that ended last
    this.traces = new WeakMap(); // of turns
    this.provisional = ""; // text that may follow
    this.listeners = new Set();
    this.redraw = null; // timer
  }

  async load() {
    this.conversations = await storage.load();
    for (const turn of this.conversations.flatMap((each) => each.turns)) {
      if (turn.state === "waiting" || turn.state === "streaming") turn.state = "stopped";
    }
    this.changed();
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
      storage.save(this.current);
    } else this.unasked = chosen;
    this.changed();
  }

  remove(conversation) {
    if (conversation.turns.includes(this.live?.turn)) this.stop();
    this.conversations = this.conversations.filter((each) => each !== conversation);
    if (this.current === conversation) this.current = null;
    storage.remove(conversation.id);
    this.changed();
  }

  /** Ask in the current conversation; at `place`, in place of that turn and all behind it. */
  async ask(question, options, place = null) {
    if (this.live) return;
    const now = Date.now();
    this.current ??= this.begun(now);
    const conversation = this.current;
    if (place !== null) conversation.turns.splice(place);
    const chosen = inWords(this.chosen);
    const turn = { question, answer: "", doubt: null, state: "waiting", report: null, error: null, chosen };
    conversation.turns.push(turn);
    conversation.changed = now;
    if (conversation.turns.length === 1) conversation.title = titleOf(question);
    this.conversations = [conversation, ...this.conversations.filter((each) => each !== conversation)];
    const controller = new AbortController();
    this.live = { turn, controller };
    this.provisional = "";
    this.changed();
    storage.save(conversation);
    const fields = { ...documentFields(this.chosen), ...options };
    const body = { model: "dragon", stream: true, messages: messagesOf(conversation), ...fields };
    try {
      for await (const chunks of stream("v1/chat/completions", body, controller.signal)) {
        for (const chunk of chunks) this.take(turn, chunk);
        this.changedSoon();
      }
      turn.state = "done";
    } catch (error) {
      turn.state = controller.signal.aborted ? "stopped" : "failed";
      if (turn.state === "failed") turn.error = error.message;
    }
    this.live = null;
    this.finished = turn;
    this.changed();
    if (this.conversations.includes(conversation)) storage.save(conversation);
  }

  stop() {
    this.live?.controller.abort();
  }

  begun(now) {
    const id = now.toString(36) + Math.random().toString(36).slice(2, 8);
    return { id, title: "", created: now, changed: now, turns: [], chosen: this.unasked };
  }

  take(turn, chunk) {
    const piece = chunk.choices[0]?.delta?.content ?? "";
    if (piece) {
      turn.answer += piece;
      turn.state = "streaming";
      this.provisional = "";
    }
    if (chunk.dragon?.doubt) turn.doubt = chunk.dragon.doubt.sentence;
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

function messagesOf(conversation) {
  const messages = [];
  conversation.turns.forEach((turn, place) => {
    const last = place === conversation.turns.length - 1;
    if (!last && !turn.answer) return; // a question that nobody answered
    messages.push({ role: "user", content: turn.question });
    if (!last) messages.push({ role: "assistant", content: turn.answer });
  });
  return messages;
}

function titleOf(question) {
  const text = question.trim().replace(/\s+/g, " ");
  return text.length > LONGEST_TITLE ? `${text.slice(0, LONGEST_TITLE - 1)}…` : text;
}
