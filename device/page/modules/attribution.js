// Which document each part of an answer comes from, by the shares in the report.

const LEADING = 0.6; // share of a part above which it is a side's

// Scripts without spaces between words, each of whose tokens is a word, as for the report's citations.
const UNSPACED =
  /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;

const SPELLED = /[\p{L}\p{N}]/u;

// Of Markdown, what has letters or digits and is not shown: numbers of items, and what stands behind a fence of code.
const UNSHOWN = /^ {0,3}(?:\d{1,9}[.)](?=[ \t])|(?:```+(?![^\n]*`)|~~~+).*)/gm;

/**
 * The parts of `text` in order, whole words with the same largest share: `{start, end, side, source, note}`.
 * `source` is an index into the report's sources, or null for what the model would have said without any; `note` is
 * where the footnote of that source belongs, or null. `side` is "device", "cloud", "both" where neither leads, or
 * "model".
 */
export function partsOf(text, report) {
  const parts = [];
  const cited = citedTokens(report);
  const blanked = text.replace(UNSHOWN, (signs) => " ".repeat(signs.length));
  for (const { start, end, tokens, sums, nobody } of wordsOf(text, report)) {
    const shares = sharesOf(sums, nobody);
    const top = shares.indexOf(Math.max(...shares));
    const source = top === shares.length - 1 ? null : top;
    let last = parts.at(-1);
    if (last && last.source === source) {
      last.end = end;
      last.words += 1;
      shares.forEach((share, index) => (last.shares[index] += share));
    } else parts.push((last = { start, end, source, shares, words: 1, cited: null }));
    const shown = blanked.slice(start, end);
    if (shown.trim() && tokens.some((token) => cited.get(token) === source)) last.cited = start + lastWordEnd(shown);
  }
  const found = parts.map(({ start, end, source, shares, words, cited }) => {
    const side = sideOf(
      shares.map((share) => share / words),
      source,
      report.sources,
    );
    return { start, end, source, side, cited, note: null };
  });
  const noted = found.filter((part) => part.cited !== null);
  noted.forEach((part, place) => {
    if (noted[place + 1]?.source !== part.source) part.note = part.cited;
  });
  return found.map(({ start, end, source, side, note }) => ({ start, end, source, side, note }));
}

/** The source of each token whose word stands in one of the report's quotes. */
function citedTokens(report) {
  const found = new Map();
  for (const { source, quotes } of report.citations ?? [])
    for (const { tokens } of quotes)
      for (const [first, end] of tokens) for (let token = first; token < end; token += 1) found.set(token, source);
  return found;
}

/** Sources in the order in which they are cited: `{number, index, source, share, quotes}`; then those that are not. */
export function footnotesOf(parts, report) {
  const tokens = Math.max(1, report.attribution.length);
  const share = (index) => report.attribution.reduce((sum, row) => sum + (row[index] ?? 0), 0) / tokens;
  const noted = parts.filter((part) => part.note !== null).map((part) => part.source);
  const order = [...new Set([...noted, ...(report.citations ?? []).map((citation) => citation.source)])];
  const quotes = new Map((report.citations ?? []).map((citation) => [citation.source, citation.quotes]));
  const note = (index, place) => ({
    number: place + 1,
    index,
    source: report.sources[index],
    share: share(index),
    quotes: quotes.get(index) ?? [],
  });
  const rest = report.sources.map((_, index) => index).filter((index) => !order.includes(index));
  return { cited: order.map(note), rest: rest.map((index) => note(index, -1)) };
}

/** Shares of a word: of the sources, and last of no document. */
function sharesOf(sums, nobody) {
  const total = sums.reduce((sum, share) => sum + share, 0);
  return total > 0 ? [...sums.map((share) => ((1 - nobody) * share) / total), nobody] : [...sums, 1];
}

/**
 * Tokens up to the next space: `{start, end, tokens, sums, nobody}`, with the sums of their shares by source and the
 * product of those of no document. Signs count only in words of signs.
 */
function wordsOf(text, report) {
  const words = [];
  const shift = report.pieces.join("").indexOf(text); // a stop string may have cut the end, and leading space
  if (!report.attribution.length || shift < 0) return words;
  let place = -shift;
  report.pieces.forEach((piece, number) => {
    const start = Math.max(0, place);
    place += piece.length;
    const end = Math.min(text.length, place);
    if (!report.attribution[number] || end <= start) return;
    const last = words.at(-1);
    if (last && joined(text, start)) {
      last.end = end;
      last.tokens.push(number);
    } else words.push({ start, end, tokens: [number] });
  });
  return words.map((word) => {
    const spelled = word.tokens.filter((token) => SPELLED.test(report.pieces[token]));
    const rows = (spelled.length ? spelled : word.tokens).map((token) => report.attribution[token]);
    const sums = rows[0].map((_, source) => rows.reduce((sum, row) => sum + row[source], 0));
    const rest = (row) => Math.max(0, 1 - row.reduce((sum, share) => sum + share, 0));
    return { ...word, sums, nobody: rows.reduce((product, row) => product * rest(row), 1) };
  });
}

/** Whether what stands before and behind `place` is of one word. */
function joined(text, place) {
  const before = [...text.slice(Math.max(0, place - 2), place)].at(-1) ?? " ";
  const border = before + String.fromCodePoint(text.codePointAt(place));
  return !/\s/.test(border) && !UNSPACED.test(border);
}

/** Where the last word ends, with its punctuation, but before Markdown's own signs. */
function lastWordEnd(text) {
  const words = [...text.matchAll(/[\p{L}\p{N}][\p{L}\p{M}\p{N}]*[.,;:!?)\]"'”’»]*/gu)];
  return words.length ? words.at(-1).index + words.at(-1)[0].length : text.length;
}

function sideOf(shares, source, sources) {
  for (const side of ["device", "cloud"]) {
    const sum = sources.reduce((total, each, index) => total + (each.side === side ? shares[index] : 0), 0);
    if (sum >= LEADING) return side;
  }
  return source === null ? "model" : "both";
}
