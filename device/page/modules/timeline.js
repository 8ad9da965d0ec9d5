// What a trace says about each position, and how it stood at any time. No looks here.

export const LANES = ["cloud", "target", "device"];
const OTHER = { device: "cloud", cloud: "device" };
const LEAD = 2; // median steps that the picture shows before the first draft is there
const LONGEST_LEAD = 0.5; // of the time from the first decision to the last, that it shows before the first one

/**
 * The timeline of an answer: `columns` (one per token: `{position, text, decided, alone, drafts}`), `cells` (drafts and
 * targets), `twigs` (drafts of branches that came to nothing), `messages`, and the time `from` .. `to`. Times are
 * nanoseconds since the request.
 */
export function timelineOf(report, trace) {
  const decisions = decisionsOf(trace);
  const cells = [];
  const sent = new Map();
  const messages = trace.spans.filter((span) => span.kind === "transmit").map((span) => wayOf(span, decisions));
  for (const message of messages) {
    if (message.detail !== "draft") continue;
    const key = `${message.side} ${message.position} ${message.epoch}`;
    sent.set(key, [...(sent.get(key) ?? []), message]);
  }
  const twigs = twigsOf(trace, decisions);
  const steps = trace.spans.filter((span) => span.kind === "decode" && span.detail !== "branched");
  for (const span of steps) {
    const waiting = sent.get(`${span.side} ${span.position} ${span.epoch}`) ?? [];
    const message = waiting.find((each) => each.start >= span.end);
    cells.push({
      lane: span.side,
      position: span.position,
      begun: span.start,
      drafted: span.end,
      arrived: message ? message.end : span.end,
      fate: span.detail,
      judged: verdictTime(span, trace, decisions),
    });
  }
  const columns = report.pieces.map((text, position) => {
    const decision = decisions.get(position);
    const [device, cloud] = report.accepted[position] ?? [null, null];
    return {
      position,
      text,
      decided: decision?.end ?? null,
      by: decision?.side ?? null,
      alone: report.degraded.includes(position) || decision?.detail === "alone",
      drafts: { device, cloud },
    };
  });
  const ends = [...decisions.values()].map((span) => span.end);
  const drafted = steps.map((span) => span.end);
  const to = Math.max(0, ...ends, ...drafted, ...messages.filter((each) => each.detail === "target").map((m) => m.end));
  const first = Math.min(to, ...drafted);
  const decided = Math.min(to, ...ends);
  const from = Math.max(0, first - LEAD * medianStep(steps), decided - LONGEST_LEAD * (to - decided));
  return { columns, cells, twigs, messages, from, to };
}

/** The twigs at `time`. */
export function twigsAt(twigs, time) {
  return twigs.filter((twig) => twig.drafted <= time && time < twig.gone);
}

/** How a draft looks at `time`. */
export function draftState(cell, time) {
  if (time < cell.begun) return "absent";
  if (time < cell.drafted) return cell.fate === "pre-empted" ? "absent" : "growing";
  if (time >= cell.judged) {
    if (cell.fate === "kept") return "kept";
    if (cell.fate === "rejected") return "rejected";
    return cell.fate === "unused" ? "unused" : "gone";
  }
  return time < cell.arrived ? "leaving" : "drafted";
}

/** Messages under way at `time`, with the share of their way that is behind them. */
export function inFlight(messages, time) {
  return messages
    .filter((message) => message.start <= time && time < message.end)
    .map((message) => ({ ...message, share: (time - message.start) / Math.max(1, message.end - message.start) }));
}

/** Tokens decided, and drafts of each side judged and right, until `time`. */
export function tallyAt(timeline, report, time) {
  const tally = { decided: 0, device: { right: 0, judged: 0 }, cloud: { right: 0, judged: 0 } };
  for (const column of timeline.columns) {
    if (column.decided === null || column.decided > time) continue;
    tally.decided += 1;
    for (const side of ["device", "cloud"]) {
      if (column.drafts[side] === null) continue;
      tally[side].judged += 1;
      tally[side].right += column.drafts[side] ? 1 : 0;
    }
  }
  return tally;
}

/** Drafts behind prefixes that no target took: each is there until the token before it is decided. */
function twigsOf(trace, decisions) {
  const counts = new Map();
  return trace.spans
    .filter((span) => span.kind === "decode" && span.detail === "branched")
    .map(({ side, position, end }) => {
      const key = `${side} ${position}`;
      const nth = counts.get(key) ?? 0;
      counts.set(key, nth + 1);
      return { lane: side, position, nth, drafted: end, gone: decisions.get(position - 1)?.end ?? end };
    });
}

function decisionsOf(trace) {
  const found = new Map();
  for (const span of trace.spans) {
    if (span.kind !== "aggregate") continue;
    if (!found.has(span.position) || span.side === "device") found.set(span.position, span);
  }
  return found;
}

/** A message with the lanes between which it goes. */
function wayOf(span, decisions) {
  const { side, detail, position, epoch, start, end } = span;
  const between = { draft: [side, "target"], target: ["target", OTHER[side]] }[detail] ?? [side, OTHER[side]];
  return { side, detail, position, epoch, start, end, between, column: decisions.has(position) ? position : null };
}

function verdictTime(span, trace, decisions) {
  const { side, detail: fate, position } = span;
  if (fate === "kept" || fate === "rejected") return decisions.get(position)?.end ?? span.end;
  if (fate === "discarded") {
    const back = trace.spans.find(
      (each) => each.kind === "roll back" && each.side === side && each.position <= position && each.end >= span.start,
    );
    return back?.end ?? span.end;
  }
  return span.end; // unused, late, pre-empted
}

function medianStep(steps) {
  const lengths = steps.map((span) => span.end - span.start).sort((one, other) => one - other);
  return lengths[Math.floor(lengths.length / 2)] ?? 0;
}
