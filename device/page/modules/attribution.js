// Which document each part of an answer comes from, by the shares in the report.

const LEADING = 0.6; // share of a side above which words are its own

/**
 * The parts of `text` in order, whole words, `{start, end, side, source, cited}`: `side` is "device", "cloud", "both"
 * where neither leads, or "model" for what it would have said without any document; `source` is an index into the
 * report's sources or null; `cited` says that a footnote belongs behind the part.
 */
export function partsOf(text, report) {
  const parts = [];
  for (const { start, end, shares } of wordsOf(text, report)) {
    const from = originOf(shares, report.sources);
    const last = parts.at(-1);
    if (last && last.side === from.side && last.source === from.source) last.end = end;
    else parts.push({ start, end, ...from, cited: false });
  }
  const sourced = parts.filter((part) => part.source !== null);
  sourced.forEach((part, place) => (part.cited = sourced[place + 1]?.source !== part.source));
  return parts;
}

/** Sources in the order in which they are cited: `{number, index, source, share}`; then those that are not. */
export function footnotesOf(parts, report) {
  const tokens = Math.max(1, report.attribution.length);
  const share = (index) => report.attribution.reduce((sum, row) => sum + (row[index] ?? 0), 0) / tokens;
  const order = [...new Set(parts.filter((part) => part.cited).map((part) => part.source))];
  const note = (index, place) => ({ number: place + 1, index, source: report.sources[index], share: share(index) });
  const rest = report.sources.map((_, index) => index).filter((index) => !order.includes(index));
  return { cited: order.map(note), rest: rest.map((index) => note(index, -1)) };
}

/** Tokens up to the next space, with the sum of their shares. */
function wordsOf(text, report) {
  const words = [];
  const shift = report.pieces.join("").indexOf(text); // a stop string may have cut the end, and leading space
  if (!report.attribution.length || shift < 0) return words;
  let place = -shift;
  report.pieces.forEach((piece, number) => {
    const start = Math.max(0, place);
    place += piece.length;
    const end = Math.min(text.length, place);
    const row = report.attribution[number];
    if (!row || end <= start) return;
    const last = words.at(-1);
    const goesOn = last && /\S\S/.test(text.slice(start - 1, start + 1));
    if (goesOn) {
      last.end = end;
      row.forEach((share, index) => (last.shares[index] += share));
      last.tokens += 1;
    } else words.push({ start, end, shares: [...row], tokens: 1 });
  });
  for (const word of words) word.shares = word.shares.map((share) => share / word.tokens);
  return words;
}

function originOf(shares, sources) {
  const sums = { device: 0, cloud: 0 };
  shares.forEach((share, index) => (sums[sources[index].side] += share));
  const side = sums.device > sums.cloud ? "device" : "cloud";
  if (sums[side] < LEADING) return { side: sums.device + sums.cloud < LEADING ? "model" : "both", source: null };
  let source = null;
  shares.forEach((share, index) => {
    if (sources[index].side === side && (source === null || share > shares[source])) source = index;
  });
  return { side, source };
}
