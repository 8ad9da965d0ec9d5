// The pipeline of one answer: a picture that plays once, a slider for its time, its figures, and a table of the same.

import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { LANES, draftState, inFlight, tallyAt, timelineOf, twigsAt } from "./timeline.js";
import { Figures } from "./figures.js";
import { Levels } from "./levels.js";
import { bytes, count, milliseconds, percent, seconds, seen } from "./text.js";

const LANE_TOPS = { cloud: 4, target: 78, device: 152 };
const CELL = 30; // pixels, height
const HEIGHT = 186;
const GAP = 6;
const TWIG = 5; // pixels, of a branch's draft
const TWIGS = 4; // side by side; more are drawn over these
const LONGEST = 12; // characters of a token that are shown
const WIDTH_OF_CHARACTER = 7.4;
const STEPS = 1000; // of the slider
const SHORTEST_PLAY = 3; // seconds
const LONGEST_PLAY = 12;
const PLAY_OF_TOKEN = 0.25;
const FRAME = 33; // milliseconds
const OF_A_TOKEN = new Set(["draft", "target", "resolve", "resolved", "propose", "verdict"]); // messages
const HEADINGS = ["Position", "Token", "Cloud draft", "Device draft", "Decided by", "After"];
const NAMES = { cloud: "Cloud drafts", target: "Targets", device: "Device drafts" };

export function Pipeline({ report, trace }) {
  const timeline = useMemo(() => timelineOf(report, trace), [report, trace]);
  const places = useMemo(() => placesOf(timeline.columns), [timeline]);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const [step, setStep] = useState(still ? STEPS : 0);
  const [plays, setPlays] = useState(!still);
  const scroller = useRef(null);
  const span = timeline.to - timeline.from;
  const lasts = Math.min(LONGEST_PLAY, Math.max(SHORTEST_PLAY, PLAY_OF_TOKEN * timeline.columns.length));
  useEffect(() => {
    if (!plays) return undefined;
    const begun = performance.now() - (step >= STEPS ? 0 : (step / STEPS) * 1000 * lasts);
    const timer = setInterval(() => {
      const next = Math.min(STEPS, ((performance.now() - begun) / (1000 * lasts)) * STEPS);
      setStep(next);
      if (next >= STEPS) setPlays(false);
    }, FRAME);
    return () => clearInterval(timer);
  }, [plays]);
  const time = timeline.from + (span * step) / STEPS;
  const tally = tallyAt(timeline, report, time);
  useEffect(() => {
    const box = scroller.current;
    const place = places[Math.max(0, tally.decided - 1)];
    if (box && place && plays) box.scrollLeft = place.x - box.clientWidth / 2;
  }, [tally.decided]);
  const moved = inFlight(timeline.messages, time);
  const tokens = count(timeline.columns.length, "token");
  const now = `${milliseconds((time - timeline.from) / 1e6)}, ${tally.decided} of ${tokens} decided`;
  return html`
    <section class="pipeline" aria-label="Pipeline of this answer">
      <div class="stage">
        <ul class="lanes" aria-hidden="true">
          ${LANES.map((lane) => html`<li>${NAMES[lane]}</li>`)}
        </ul>
        <div class="strip" ref=${scroller} tabindex="0" role="region" aria-label="Pipeline, scrolls sideways">
          <${Picture} timeline=${timeline} places=${places} time=${time} moved=${moved} />
        </div>
      </div>
      <div class="player">
        <button
          type="button"
          onClick=${() => {
            if (!plays && step >= STEPS) setStep(0);
            setPlays(!plays);
          }}
        >
          ${plays ? "Pause" : step >= STEPS ? "Play again" : "Play"}
        </button>
        <input
          type="range"
          min="0"
          max=${STEPS}
          value=${Math.round(step)}
          aria-label="Time"
          aria-valuetext=${now}
          onInput=${(event) => {
            setPlays(false);
            setStep(Number(event.currentTarget.value));
          }}
        />
        <output aria-live="off">${now}</output>
      </div>
      <p class="key" aria-hidden="true">
        <span class="chip kept">draft, right</span><span class="chip rejected">✕ rejected</span
        ><span class="chip twig">branch</span
        ><span class="chip leaving">under way</span><span class="chip target">target</span
        ><span class="chip alone">decided alone</span>
      </p>
      <${Facts} report=${report} tally=${tally} moved=${moved} played=${span / 1e9 / lasts} />
      ${trace.notes.map((note) => html`<p class="hint">${seen(note)}</p>`)}
      <details>
        <summary>The same as a table</summary>
        <${Table} timeline=${timeline} />
      </details>
      <${Levels} report=${report} />
    </section>
  `;
}

function placesOf(columns) {
  let x = GAP;
  return columns.map(({ text }) => {
    const width = Math.round(18 + WIDTH_OF_CHARACTER * Math.max(1, shown(text).length));
    const place = { x, width };
    x += width + GAP;
    return place;
  });
}

function shown(text) {
  const trimmed = seen(text.trim() || "⏎");
  return trimmed.length > LONGEST ? `${trimmed.slice(0, LONGEST - 1)}…` : trimmed;
}

function Picture({ timeline, places, time, moved }) {
  const last = places.at(-1);
  const width = last ? last.x + last.width + GAP : 0;
  const { columns } = timeline;
  return html`
    <svg width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
      ${timeline.cells.map((cell, key) => {
        const column = columns[cell.position];
        const state = column ? draftState(cell, time) : "absent";
        if (state === "absent") return null;
        const text = state === "rejected" ? "✕" : cell.fate === "kept" ? shown(column.text) : "…";
        return html`<${Cell}
          key=${key}
          look=${`draft ${cell.lane} ${state}`}
          lane=${cell.lane}
          place=${places[cell.position]}
          text=${text}
        />`;
      })}
      ${twigsAt(timeline.twigs, time).map(({ lane, position, nth }) => {
        const place = places[position];
        if (!place) return null;
        const y = LANE_TOPS[lane] + (lane === "device" ? -TWIG - 2 : CELL + 2);
        const x = place.x + (nth % TWIGS) * (TWIG + 2);
        return html`<rect class=${`twig ${lane}`} x=${x} y=${y} width=${TWIG} height=${TWIG} />`;
      })}
      ${columns.map((column, position) => {
        if (column.decided === null || column.decided > time) return null;
        const look = `target ${column.alone ? "alone" : ""}`;
        return html`<${Cell}
          key=${`target ${position}`}
          look=${look}
          lane="target"
          place=${places[position]}
          text=${shown(column.text)}
        />`;
      })}
      ${moved.map((message) => {
        const place = places[message.position];
        if (!place || !OF_A_TOKEN.has(message.detail)) return null;
        const [from, to] = message.between.map((lane) => LANE_TOPS[lane] + CELL / 2);
        const y = from + (to - from) * (0.2 + 0.6 * message.share);
        return html`<circle class=${`message ${message.side}`} cx=${place.x + place.width / 2} cy=${y} r="4.5" />`;
      })}
    </svg>
  `;
}

function Cell({ look, lane, place, text }) {
  const top = LANE_TOPS[lane];
  return html`<g class=${`cell ${look}`}>
    <rect x=${place.x} y=${top} width=${place.width} height=${CELL} rx="5" />
    <text x=${place.x + place.width / 2} y=${top + CELL / 2 + 4.5} text-anchor="middle">${text}</text>
  </g>`;
}

function Facts({ report, tally, moved, played }) {
  const rate = ({ right, judged }) => (judged ? `${percent(right / judged)} (${right} of ${judged})` : "–");
  const figures = [
    ["Bytes sent", bytes(report.sent_bytes)],
    ["Bytes received", bytes(report.received_bytes + report.fetched_bytes)],
    ["Round trip", milliseconds(report.rtt_ms)],
    ["Device drafts accepted", rate(tally.device)],
    ["Cloud drafts accepted", rate(tally.cloud)],
    ["Messages under way", moved.length],
    ["Per token", seconds(report.per_token)],
    ["Shown at", `${played < 1 ? `1/${Math.max(1, Math.round(1 / played))}` : played.toFixed(1)} × its speed`],
  ];
  return html`<${Figures} figures=${figures} />`;
}

function Table({ timeline }) {
  const verdict = (accepted) => (accepted === null ? "none seen" : accepted ? "accepted" : "rejected");
  return html`<div class="scrolls" tabindex="0" role="region" aria-label="Table of positions">
    <table>
      <thead>
        <tr>
          ${HEADINGS.map((name) => html`<th scope="col">${name}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${timeline.columns.map(
          ({ position, text, decided, by, alone, drafts }) =>
            html`<tr>
              <th scope="row">${position}</th>
              <td><bdi>${seen(text.trim()) || "–"}</bdi></td>
              <td>${verdict(drafts.cloud)}</td>
              <td>${verdict(drafts.device)}</td>
              <td>${by ?? "–"}${alone ? ", alone" : ""}</td>
              <td>${decided === null ? "–" : milliseconds(decided / 1e6)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
