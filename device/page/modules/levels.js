// Bytes of an answer that each privacy level would have let leave this device, as far as the answer itself tells.

import { html, useMemo } from "./html.js";
import { bytes } from "./text.js";

// Methods in which both sides send drafts of one form; of the others, both levels let out the same.
const BOTH_DRAFT = new Set(["speculative", "token-wise"]);
const ABSENT = "the cloud took no part in this answer";

/**
 * Rows `{level, placement, bytes, how, why}`, where `how` is "measured", "estimated" or "unknown"; `bytes` is null
 * where they are unknown. Counted is every message of the answer, as `sent_bytes` of the report counts them.
 */
export function bytesByLevel(report) {
  return [...strict(report), ...balanced(report), row("offline", null, 0, "measured", "the cloud takes no part")];
}

function strict(report) {
  if (!takesPart(report)) return [row("strict", null, null, "unknown", ABSENT)];
  if (!BOTH_DRAFT.has(report.method)) return [row("strict", null, report.sent_bytes, "measured", "")];
  if (report.placement === "device") return [row("strict", "device", report.sent_bytes, "measured", "")];
  if (report.placement !== "cloud") {
    return [row("strict", "device", null, "unknown", "both sides decided tokens of this answer")];
  }
  const why = "as many as arrived: this device’s messages would have had the same form";
  return [row("strict", "device", around(report) + report.received_bytes, "estimated", why)];
}

function balanced(report) {
  if (!takesPart(report)) return [row("balanced", null, null, "unknown", ABSENT)];
  const own = row("balanced", report.placement, report.sent_bytes, "measured", "");
  if (!BOTH_DRAFT.has(report.method)) return [{ ...own, placement: null }];
  if (report.placement !== "device") return [own];
  const { device, cloud, received_bytes: received, degraded } = report;
  const unknown = row("balanced", "cloud", null, "unknown", "the cloud was away for some of this answer");
  if (degraded.length || !cloud.drafted) return [own, unknown];
  const each = received / cloud.drafted;
  const why = "this device’s drafts, as large as the cloud’s were";
  return [own, row("balanced", "cloud", around(report) + Math.round(each * device.drafted), "estimated", why)];
}

/** Whether the cloud took part; a question alone, where both sides draft, was answered by this device. */
function takesPart(report) {
  return BOTH_DRAFT.has(report.method) ? exchange(report) > 0 : report.sent_bytes > 0;
}

/** Bytes of the messages that decide tokens. */
function exchange({ sent }) {
  return sent.tokens + sent.probabilities;
}

/** Bytes that leave at every level but offline: the question, earlier turns and control messages. */
function around(report) {
  return report.sent_bytes - exchange(report);
}

function row(level, placement, bytes, how, why) {
  return { level, placement, bytes, how, why };
}

export function Levels({ report }) {
  const rows = useMemo(() => bytesByLevel(report), [report]);
  return html`<section class="levels" aria-labelledby="levels-title">
    <h3 id="levels-title">Bytes at other privacy levels</h3>
    <div class="scrolls" tabindex="0" role="region" aria-label="Table of privacy levels">
      <table>
        <thead>
          <tr>
            <th scope="col">Privacy</th>
            <th scope="col">Aggregator</th>
            <th scope="col" class="number">Bytes that leave</th>
            <th scope="col">Source</th>
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
    <p class="hint">Every message of the answer counts, with the question and the earlier turns.</p>
  </section>`;
}
