// Bytes of an answer that privacy levels let leave this device, as far as the answer itself tells. No looks here.

// Methods in which both sides send drafts of one form; of the others, both levels let out the same.
const BOTH_DRAFT = new Set(["speculative", "token-wise"]);

/**
 * Rows `{level, placement, bytes, how, why}`, where `how` is "measured", "estimated" or "unknown"; `bytes` is null
 * where they are unknown. Counted is what `sent_bytes` of the report counts.
 */
export function bytesByLevel(report) {
  return [...strict(report), ...balanced(report), row("offline", null, 0, "measured", "the cloud takes no part")];
}

function strict(report) {
  if (!report.sent_bytes) return [row("strict", null, null, "unknown", "the cloud took no part in this answer")];
  if (!BOTH_DRAFT.has(report.method)) return [row("strict", null, report.sent_bytes, "measured", "")];
  if (report.placement === "device") return [row("strict", "device", report.sent_bytes, "measured", "")];
  if (report.placement !== "cloud") return [row("strict", "device", null, "unknown", "both sides decided in this one")];
  const why = "as many as came: the cloud’s targets have the form that this device’s would have had";
  return [row("strict", "device", report.received_bytes, "estimated", why)];
}

function balanced(report) {
  if (!report.sent_bytes) return [row("balanced", null, null, "unknown", "the cloud took no part in this answer")];
  const own = row("balanced", report.placement, report.sent_bytes, "measured", "");
  if (!BOTH_DRAFT.has(report.method)) return [{ ...own, placement: null }];
  if (report.placement !== "device") return [own];
  const { device, cloud, received_bytes: received, degraded } = report;
  const unknown = row("balanced", "cloud", null, "unknown", "the cloud was away for some of this answer");
  if (degraded.length || !cloud.drafted) return [own, unknown];
  const each = received / cloud.drafted;
  const why = "this device’s drafts, as large as the cloud’s were";
  return [own, row("balanced", "cloud", Math.round(each * device.drafted), "estimated", why)];
}

function row(level, placement, bytes, how, why) {
  return { level, placement, bytes, how, why };
}
