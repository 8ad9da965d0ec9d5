"""Reports as text: pure functions of the daemon's JSON (`dragon` of a response, `/status`)."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

from common.answer.citations import AttributedText, parts
from common.answer.report import SENT_NAMES
from common.process.log_lines import steers

Json = Mapping[str, Any]

MOST_FOOTNOTES = 4
QUOTED = 120  # characters of a quote in a footnote
LABEL_WIDTH = 12
SHOWN = 12  # digits of a model's identity
ROUNDED = 0.01  # of a token; shares are rounded in transit
NO_SOURCE = "no document"
OWN_WORDS = "No footnotes: this answer takes no words from the documents."


def summarise_answer(report: Json) -> str:
    """Returns footnotes and a line of figures, after lines on text without the cloud."""
    why = _of_the_cloud(report)
    notes = [as_one_line(note) for note in report["notes"] if note not in why]
    figures = "; ".join([_time_line(report), _left(report), *notes])
    return "\n".join([*alone_lines(report), *footnotes(report), figures])


def alone_lines(report: Json) -> list[str]:
    """Returns lines on tokens without the cloud, with the reason; empty if none."""
    alone, why = report["degraded"], " ".join(map(as_one_line, _of_the_cloud(report)))
    if not alone:
        return []
    first, last = min(alone), max(alone)
    to_the_end = last + 1 == report["tokens"] and len(alone) == report["tokens"] - first
    if to_the_end and not first:
        said = "This device answered alone"
    elif to_the_end:
        said = f"From token {first} on this device answered alone"
    else:
        said = f"This device answered tokens {_ranges(alone)} alone"
    return [f"{said}: {why}" if why else f"{said}."]


def _of_the_cloud(report: Json) -> list[str]:
    """Notes with reasons for the cloud's absence."""
    return [note for note in report["notes"] if "cloud" in note] if report["degraded"] else []


def footnotes(report: Json) -> list[str]:
    """Returns the most quoted documents, in the answer's order."""
    known: Sequence[Json] | None = report["citations"]
    if known is None:  # unknown sources of tokens
        known = [{"source": source, "quotes": []} for source in range(len(report["sources"]))]
    elif not known and report["sources"]:
        return [OWN_WORDS]
    largest = sorted(known, key=lambda each: -_marked(each))[:MOST_FOOTNOTES]
    lines = [
        f"From {_name(report['sources'][each['source']])}{_quoted(each['quotes'])}" for each in known if each in largest
    ]
    if more := len(known) - len(lines):
        lines.append(f"and from {_count(more, 'other document')}")
    return lines


def _marked(citation: Json) -> int:
    """Number of answer tokens in a citation's quotes."""
    return sum(end - first for quote in citation["quotes"] for first, end in quote["tokens"])


def _quoted(quotes: Sequence[Json]) -> str:
    """Quotes of a footnote, and words that the answer spells differently."""
    if not quotes:
        return ""
    text = ", ".join(f'"{shorten(as_one_line(quote["text"]), QUOTED, placeholder=" …")}"' for quote in quotes)
    differs = ", ".join(as_one_line(word) for quote in quotes for word in quote["differs"])
    return f": {text}" + (f" (differs from the passage: {differs})" if differs else "")


def _time_line(report: Json) -> str:
    parts = [_count(report["tokens"], "token")]
    if report["tokens"]:
        parts.append(f"the first after {_seconds(report['ttft'])}")
    if report["tokens"] > 1:
        parts.append(f"then {_milliseconds(report['per_token'], 1000)} each")
    if report["degraded"]:
        parts.append(f"{len(report['degraded'])} without the cloud")
    return ", ".join(parts)


def _left(report: Json) -> str:
    if not report["sent_bytes"]:
        return "nothing left this device"
    names = ", ".join(name for part, name in SENT_NAMES.items() if report["sent"][part])
    return f"{report['sent_bytes']:,} B left this device: {names}"


def figures_line(report: Json) -> str:
    parts = [f"{report['tokens']} tokens", f"TTFT {_seconds(report['ttft'])}"]
    if report["tokens"] > 1:
        parts.append(f"{_milliseconds(report['per_token'], 1000)}/token")
    parts.append(f"accepted {_accepted('device', report)} {_accepted('cloud', report)}")
    parts.append(f"{_bytes_per_token(report)} bytes/token exchanged")
    if report["fetched_bytes"]:
        parts.append(f"{report['fetched_bytes']} bytes fetched")
    if report["degraded"]:
        parts.append(f"{len(report['degraded'])} tokens without the cloud")
    return ", ".join(parts)


def full_report(report: Json) -> str:
    """Returns the whole report, a topic per line, the attribution last."""
    lines = [
        _line("tokens", f"{report['tokens']} (prompt {report['prompt_tokens']})"),
        _line("time", _times(report)),
        _line("device", _work(report["device"])),
        _line("cloud", _work(report["cloud"])),
        _line("weights", as_one_line(report["weights"])),
        _line("sent", report["sent_in_words"]),
        _line("network", _network(report)),
        _line("decided by", _decisions(report)),
        _line("degraded", f"positions {_ranges(report['degraded'])}" if report["degraded"] else "none"),
    ]
    lines += [_line("method", f"{name.replace('_', ' ')} {value:g}") for name, value in report["figures"].items()]
    lines += [_line("note", as_one_line(note)) for note in report["notes"]]
    lines += _block("sources", [f"{_percent(share)}  {name}" for name, share in _ranked_sources(report)])
    cut = parts(report["attribution"], report["pieces"])
    lines += _block("attribution", [_attributed(part, report) for part in cut])
    return "\n".join(lines)


def status_table(status: Json) -> str:
    cloud = status["cloud"]
    state = f"{cloud['state']} ({as_one_line(cloud['address'])})" if cloud["address"] else cloud["state"]
    lines = [
        _line("version", as_one_line(status["version"])),
        _line("model", f"{as_one_line(status['name'])} ({as_one_line(status['model'])[:SHOWN]})"),
        _line("numbers", f"{status['number_type']}, {status['exactness']}; {_count(status['threads'], 'thread')}"),
        _line("weights", as_one_line(status["weights"])),
        _line("embedder", as_one_line(status["embedder"])),
        _line("privacy", status["privacy"]),
        _line("data", as_one_line(status["data"])),
        _line("tokenizer", as_one_line(status["tokenizer"])),
        _line("scorer", as_one_line(status["scorer"])),
        _line("library", f"{_count(status['documents'], 'document')}, {_count(status['chunks'], 'chunk')}"),
        _line("answers", f"{status['active']} active, {status['served']} served"),
        _line(
            "kept", f"{_count(status['conversations'], 'conversation')}, {status['conversation_bytes'] / 2**20:.0f} MiB"
        ),
        _line("cloud", state),
    ]
    if cloud["detail"]:
        lines.append(_line("", as_one_line(cloud["detail"])))
    if cloud["model"]:
        lines.append(_line("", f"model {as_one_line(cloud['model'])[:SHOWN]}, numbers {cloud['exactness']}"))
    if cloud["rtt_ms"] is not None:
        lines.append(_line("", f"round trip {_milliseconds(cloud['rtt_ms'], 1)}"))
    return "\n".join(lines)


def as_one_line(text: str) -> str:
    """Returns one line without control characters, which a document may hold."""
    return " ".join(strip_controls(text).split())


def strip_controls(text: str) -> str:
    """Removes reordering and control characters, except line breaks and tabs."""
    return "".join(character for character in text if character in "\n\t" or not steers(character))


def as_json_text(value: object) -> str:
    """Returns JSON for programs.

    ASCII on a terminal, which obeys some characters, and for encodings other than UTF-8.
    """
    utf8 = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    return json.dumps(value, ensure_ascii=sys.stdout.isatty() or not utf8)


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}".rstrip()


def _block(label: str, texts: Iterable[str]) -> list[str]:
    lines = [_line("" if n else label, text) for n, text in enumerate(texts)]
    return lines or [_line(label, "none")]


def _times(report: Json) -> str:
    text = f"{_seconds(report['seconds'])}, first token after {_seconds(report['ttft'])}"
    if report["tokens"] < 2:
        return text
    mean, median = _milliseconds(report["per_token"], 1000), _milliseconds(report["inter_token"], 1000)
    return f"{text}, then {mean} per token (median {median})"


def _work(side: Json) -> str:
    judged = side["accepted"] + side["rollbacks"]
    share = "" if side["acceptance"] is None else f" ({_percent(side['acceptance']).strip()})"
    branches = f"{side['branches']} in branches ({side['used']} used), " if side["branches"] else ""
    return (
        f"{side['drafted']} drafted, {side['accepted']} of {judged} accepted{share}, "
        f"{branches}{side['preempted']} preempted, {side['stale']} stale, "
        f"{_milliseconds(side['decode_ms'], 1)} per step"
    )


def _network(report: Json) -> str:
    trip = "no round trip measured" if report["rtt_ms"] is None else f"round trip {_milliseconds(report['rtt_ms'], 1)}"
    return (
        f"{trip}, {report['received_bytes']} bytes received "
        f"({_bytes_per_token(report)} bytes/token exchanged), {report['fetched_bytes']} bytes of documents"
    )


def _decisions(report: Json) -> str:
    return (
        f"method {report['method']}, aggregation {report['aggregation']}, "
        f"sampler {report['sampler']}, placement {report['placement']}, seed {report['seed']}, "
        f"{_count(report['switches'], 'switch', 'switches')}, "
        f"{_count(report['certificate_failures'], 'certificate failure')}, "
        f"{_count(report['disagreements'], 'disagreement')}"
    )


def _attributed(part: AttributedText, report: Json) -> str:
    name = NO_SOURCE if part.source is None else _name(report["sources"][part.source])
    text = part.text.replace("\n", "\\n")
    return f'{_percent(part.share)}  {name}: "{strip_controls(text)}"'


def _ranked_sources(report: Json) -> list[tuple[str, float]]:
    """Every source, and none, with its mean share, the largest first."""
    rows: Sequence[Sequence[float]] = report["attribution"]
    shares = [
        (_name(source), sum(row[n] for row in rows) / len(rows) if rows else 0.0)
        for n, source in enumerate(report["sources"])
    ]
    nobody = sum(max(0.0, 1.0 - sum(row)) for row in rows) / len(rows) if rows else 0.0
    if nobody > ROUNDED:
        shares.append((NO_SOURCE, nobody))
    return sorted(shares, key=lambda pair: -pair[1])


def _name(source: Json) -> str:
    return f"{as_one_line(source['title'])} ({source['side']})"


def _accepted(side: str, report: Json) -> str:
    share = report[side]["acceptance"]
    return f"{side} -" if share is None else f"{side} {_percent(share).strip()}"


def _bytes_per_token(report: Json) -> str:
    """Bytes per token of the messages that decide tokens, both directions."""
    tokens, sent = report["tokens"], report["sent"]
    exchanged = sent["tokens"] + sent["probabilities"] + report["received_bytes"]
    return f"{exchanged / tokens:.0f}" if tokens else "-"


def _ranges(positions: Sequence[int]) -> str:
    """Returns `[1, 2, 3, 7]` as `1-3, 7`."""
    runs: list[list[int]] = []
    for position in sorted(positions):
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _milliseconds(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{value * scale:.1f} ms"


def _percent(share: float) -> str:
    return f"{100 * share:3.0f} %"
