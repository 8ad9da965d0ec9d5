// Which document each part of an answer comes from, by the shares in the report.

const WORD = /[\p{L}\p{N}]/u;
const LEADING = 0.6; // share of a side above which a token is its own

/**
 * The parts of `text` in order, `{start, end, side, source}`: `side` is "device", "cloud" or "both" where neither
 * leads, `source` an index into the report's sources or null; `cites` are the sources whose footnotes belong behind a
 * part, which is at the end of a word.
 */
export function partsOf(text, report) {
  const told = report.pieces.join("");
  const shift = told.indexOf(text); // a stop string may have cut the end, and leading space
  if (!report.attribution.length || shift < 0) return [];
  const parts = [];
  let place = -shift;
  report.pieces.forEach((piece, number) => {
    const start = Math.max(0, place);
    place += piece.length;
    const end = Math.min(text.length, place);
    const row = report.attribution[number];
    if (!row || end <= start) return;
    const from = origin(row, report.sources);
    const last = parts.at(-1);
    if (last && last.end === start && last.side === from.side && last.source === from.source) last.end = end;
    else parts.push({ start, end, ...from, cites: [] });
  });
  let waiting = null;
  for (const part of parts) {
    if (part.source === null) continue;
    if (waiting && waiting.source !== part.source) waiting.cites = [waiting.source];
    waiting = part;
  }
  if (waiting) waiting.cites = [waiting.source];
  return atWordEnds(text, parts);
}

/** Sources in the order in which they are cited: `{number, index, source, share}`; then those that are not. */
export function footnotesOf(parts, report) {
  const share = (index) =>
    report.attribution.reduce((sum, row) => sum + (row[index] ?? 0), 0) / Math.max(1, report.attribution.length);
  const order = [...new Set(parts.flatMap((part) => part.cites))];
  const note = (index, place) => ({ number: place + 1, index, source: report.sources[index], share: share(index) });
  const rest = report.sources.map((_, index) => index).filter((index) => !order.includes(index));
  return { cited: order.map(note), rest: rest.map((index) => note(index, -1)) };
}

/** The parts with each footnote at the end of the word that it would stand in, where that needs a cut. */
function atWordEnds(text, parts) {
  const inWord = (place) => place < text.length && WORD.test(text[place]);
  const found = [];
  let carried = [];
  for (const part of parts) {
    let { start } = part;
    let stop = start;
    while (carried.length && stop < part.end && inWord(stop)) stop += 1;
    if (stop > start && stop < part.end) {
      found.push({ ...part, end: stop, cites: carried });
      carried = [];
      start = stop;
    }
    const cites = [...carried, ...part.cites];
    const open = inWord(part.end - 1) && inWord(part.end);
    found.push({ ...part, start, cites: open ? [] : cites });
    carried = open ? cites : [];
  }
  return found;
}

function origin(row, sources) {
  const total = row.reduce((sum, share) => sum + share, 0);
  const sums = { device: 0, cloud: 0 };
  row.forEach((share, index) => (sums[sources[index].side] += share));
  const side = sums.device > sums.cloud ? "device" : "cloud";
  if (!total || sums[side] < LEADING * total) return { side: "both", source: null };
  let source = null;
  row.forEach((share, index) => {
    if (sources[index].side === side && (source === null || share > row[source])) source = index;
  });
  return { side, source };
}
