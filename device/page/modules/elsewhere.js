// The answer under other conditions: what other privacy levels would have sent, and its pace over another network.

import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { Figures } from "./figures.js";
import { bytesByLevel } from "./levels.js";
import { bytes, milliseconds, seconds, seen } from "./text.js";

const TRIPS = [0, 5, 10, 20, 50, 100, 150, 200, 300, 500, 750, 1000]; // milliseconds
const USUAL = 300; // milliseconds that are tried first
const MOST_TOKENS = 512; // that the daemon simulates
const SIMULATED = new Set(["speculative", "token-wise"]); // methods
const FRAME = 50; // milliseconds

export function Levels({ report }) {
  const rows = useMemo(() => bytesByLevel(report), [report]);
  return html`<section class="levels" aria-labelledby="levels-title">
    <h3 id="levels-title">What another privacy level would have sent</h3>
    <div class="scrolls" tabindex="0" role="region" aria-label="Table of privacy levels">
      <table>
        <thead>
          <tr>
            <th scope="col">Privacy</th>
            <th scope="col">Aggregator</th>
            <th scope="col" class="number">Bytes that leave</th>
            <th scope="col">Known how</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            ({ level, placement, bytes: sent, how, why }) =>
              html`<tr>
                <th scope="row">${level}</th>
                <td>${placement ?? "–"}</td>
                <td class="number">${sent === null ? "–" : bytes(sent)}</td>
                <td>${how}${why && `: ${why}`}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="hint">All messages of this answer: the question, earlier turns, tokens and probabilities.</p>
  </section>`;
}

/** Why an answer can't be simulated; empty if it can. */
export function hindrance(report) {
  if (!SIMULATED.has(report.method)) return "The simulator knows other methods than this one.";
  if (report.accepted.length < 2) return "The answer is too short.";
  if (report.accepted.length > MOST_TOKENS) return "The answer is too long.";
  const unknown = report.accepted.some((verdicts) => verdicts.includes(null));
  if (unknown || report.degraded.length || !report.device.decode_ms || !report.cloud.decode_ms)
    return "Of some tokens it is not known whether both sides’ drafts were right.";
  return "";
}

export function Elsewhere({ report }) {
  const hindered = useMemo(() => hindrance(report), [report]);
  const [place, setPlace] = useState(TRIPS.indexOf(USUAL));
  const [found, setFound] = useState(null); // {trip, times, own}
  const [problem, setProblem] = useState(null);
  const known = useRef(new Map()); // times by round trip
  const trip = TRIPS[place];
  useEffect(() => {
    if (hindered) return undefined;
    const controller = new AbortController();
    const timesAt = async (rtt) => {
      const times =
        known.current.get(rtt) ??
        (await ask("POST", "simulate", { body: simulation(report, rtt), signal: controller.signal })).times;
      known.current.set(rtt, times);
      return times;
    };
    const look = async () => {
      try {
        setFound({ trip, own: await timesAt(report.rtt_ms ?? 0), times: await timesAt(trip) });
        setProblem(null);
      } catch (error) {
        if (!controller.signal.aborted) setProblem(error.message);
      }
    };
    look();
    return () => controller.abort();
  }, [report, trip]);
  return html`<section class="elsewhere" aria-labelledby="elsewhere-title">
    <h3 id="elsewhere-title">The same answer at another latency, simulated</h3>
    ${
      hindered
        ? html`<p class="hint">${hindered}</p>`
        : html`<label class="player">
              <span>Round trip</span>
              <input
                type="range"
                min="0"
                max=${TRIPS.length - 1}
                value=${place}
                aria-valuetext=${milliseconds(trip)}
                onChange=${(event) => setPlace(Number(event.currentTarget.value))}
              />
              <output>${milliseconds(trip)}</output>
            </label>
            ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
            ${found && html`<${Replay} key=${found.trip} report=${report} found=${found} />`}`
    }
  </section>`;
}

function simulation(report, rtt) {
  return {
    accepted: report.accepted,
    device_ms: report.device.decode_ms,
    cloud_ms: report.cloud.decode_ms,
    rtt_ms: rtt,
    placement: report.placement,
    synchronous: report.method === "token-wise",
  };
}

function Replay({ report, found }) {
  const { times, own, trip } = found;
  const [shown, setShown] = useState(times.length);
  const [plays, setPlays] = useState(false);
  useEffect(() => {
    if (!plays) return undefined;
    const begun = performance.now();
    const timer = setInterval(() => {
      const now = (performance.now() - begun) / 1000;
      const count = times.filter((time) => time <= now).length;
      setShown(count);
      if (count === times.length) setPlays(false);
    }, FRAME);
    return () => clearInterval(timer);
  }, [plays]);
  const perToken = (all) => seconds(all.at(-1) / (all.length - 1));
  const figures = [
    ["Per token, measured", seconds(report.per_token)],
    [`Simulated at ${milliseconds(report.rtt_ms ?? 0)}, as it was`, perToken(own)],
    [`Simulated at ${milliseconds(trip)}`, perToken(times)],
    ["First to last token", seconds(times.at(-1))],
  ];
  return html`
    <${Figures} figures=${figures} />
    <p class="replayed" aria-hidden=${plays ? "true" : "false"}>${seen(report.pieces.slice(0, shown).join(""))}</p>
    <p class="actions">
      <button type="button" onClick=${() => setPlays(!plays)}>
        ${plays ? "Stop the replay" : "Replay at this pace"}
      </button>
    </p>
    <p class="hint">
      By the daemon’s simulator, from this answer’s accepted drafts and median steps. From the first token on; a step is
      always as long as the median.
    </p>
  `;
}
