"""The commands `dragon library add|list|prefill|remove|search`. Results go to stdout, everything else to stderr.

Exit codes: 0 done, 1 nothing found or something skipped, 2 impossible (one line).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.filesize import decimal

from common.configuration.settings import Settings
from common.engine.model.errors import ModelError
from common.library.embedder import Embedder, SentenceTransformerEmbedder, chunker_for
from common.library.errors import LibraryError, LibraryLocked, PathError
from common.library.ingest import AddReport, Progress
from common.library.library import Library
from common.library.places import is_within
from common.library.readers.encodings import is_of_text
from common.library.readings import IngestRun
from common.library.removal import named_uploads
from common.library.snapshots import forget_unread
from common.library.states import REFUSALS, forget_states, forgetting_states
from common.library.tags import tags_of
from common.library.terminal import pluralise, printable, progress_bar, say, show_table
from common.process.files import make_private
from proto.patterns import checked_tag

if TYPE_CHECKING:
    from common.library.prefill import PrefillReport

DONE, INCOMPLETE, IMPOSSIBLE = 0, 1, 2

_EXCERPT = 200  # characters shown of a hit
_KINDS = 8  # most ignored file types, or passed-over folder names, in a message


def open_library(settings: Settings, lent: Callable[[Embedder], Embedder] = lambda own: own) -> Library:
    """Opens the library of the settings; `lent` may replace their embedding model.

    Raises `LibraryError`.
    """
    embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device, settings.embedder_dtype)
    return Library(
        settings.library,
        lent(embedder),
        chunker=chunker_for(embedder, settings.chunk_tokens),
        approximate_from=settings.approximate_from,
        kind=settings.search,
    )


def add_documents(
    settings: Settings,
    paths: Sequence[Path],
    rebuild: bool = False,
    watch: bool = False,
    tags: Sequence[str] | None = None,
    encoding: str | None = None,
) -> int:
    """Brings the library up to date with folders or documents.

    Args:
        rebuild: embed the existing chunks again first.
        watch: daemons repeat the reading after every change.
        tags: replace those of the folders or documents; None keeps them.
        encoding: for texts that do not state theirs; empty detects it, None keeps the earlier choice.
    """
    try:
        given = None if tags is None else [checked_tag(tag) for tag in tags]
    except ValueError as error:
        return _refuse(str(error))
    if encoding and not is_of_text(encoding):
        return _refuse(f"{encoding} is not a known text encoding; examples are cp1252, big5 and koi8-r")

    def work(library: Library) -> int:
        _limit_threads(settings)
        forget_unread(settings)
        outcome = DONE
        if rebuild:
            with progress_bar("embedding again", in_bytes=False) as reached:
                chunks = library.rebuild(reached)
            say(f"{pluralise(chunks, 'chunk')} embedded again")
        for path in paths:
            try:
                with progress_bar("reading", in_bytes=True) as reached:
                    report = bring_up_to_date(library, settings, path, reached, watch, given, encoding=encoding)
            except PathError as error:
                outcome = _refuse(str(error))  # the other paths are still read
                continue
            _tell(path, report)
            nothing = report.ignored and not (report.added or report.updated or report.unchanged or report.moved)
            if report.skipped or nothing:
                outcome = max(outcome, INCOMPLETE)
        return outcome

    return _with_library(settings, work)


def bring_up_to_date(
    library: Library,
    settings: Settings,
    path: Path,
    progress: Progress,
    watch: bool = False,
    tags: Sequence[str] | None = None,
    first: Collection[str] = (),
    again: bool = False,
    encoding: str | None = None,
) -> AddReport:
    """Runs `Library.add`, then forgets the stored keys and values of replaced or removed documents.

    Raises `LibraryError`.
    """
    replaced = True  # assumed after an interruption
    try:
        report = library.add(path, progress, watch, tags, first, again, encoding)
        replaced = bool(report.updated or report.removed)
    except REFUSALS:
        replaced = False
        raise
    finally:
        if replaced:
            forget_states(settings.document_store)
    return report


def print_documents(settings: Settings) -> int:
    """Shows every document with its number of chunks and tags."""

    def work(library: Library) -> int:
        found = library.contents()
        if not found.files:
            say(_empty(settings))
        show_table(
            ("title", "path", "folder", "chunks", "bytes", "tags"),
            [
                (
                    file.title,
                    file.relative_path,
                    file.root,
                    str(file.chunks),
                    str(file.size),
                    ", ".join(tags_of(file.path, found.tags)),
                )
                for file in found.files
            ],
        )
        return DONE

    return _with_library(settings, work)


def print_status(settings: Settings) -> int:
    """Shows each folder's documents, date of reading, progress and skipped files."""

    def work(library: Library) -> int:
        found = library.contents()
        files, readings = found.files, found.readings
        chunks = sum(file.chunks for file in files)
        total = sum(file.size for file in files)
        print(f"{pluralise(len(files), 'document')}, {pluralise(chunks, 'chunk')}, {decimal(total)}")
        for reading in readings:
            own = [file for file in files if is_within(file.path, reading.root)]
            size = decimal(sum(file.size for file in own))
            age = _age(reading, settings)
            print(f"{printable(reading.root)}: {pluralise(len(own), 'document')}, {size}, {age}")
            for path, reason in reading.skipped:
                print(f"  skipped {printable(path)}: {reason}")
            for path, remark in ((file.path, remark) for file in own for remark in file.remarks):
                print(f"  about {printable(path)}: {printable(remark)}")
        return INCOMPLETE if any(reading.skipped for reading in readings) else DONE

    return _with_library(settings, work)


def _age(reading: IngestRun, settings: Settings) -> str:
    if reading.ended is not None:
        moment = datetime.fromtimestamp(reading.ended).astimezone()
        encoding = f", texts in {reading.encoding}" if reading.encoding else ""
        return f"read on {moment:%Y-%m-%d at %H:%M}{', watched' if reading.watched else ''}{encoding}"
    share = f"{reading.done / reading.total:.0%}" if reading.total else "0%"
    if reading.running:
        at = ", ".join(filter(None, (printable(reading.path), reading.place))) or "the first document"
        return f"being read: {share} done, at {at}"
    command = f"dragon library add --role {settings.role} {quote(printable(reading.root))}"
    return f"interrupted at {share}: `{command}` continues"


def remove_documents(
    settings: Settings, paths: Sequence[str], everything: bool = False, uploads: Path | None = None
) -> int:
    """Forgets all documents, or documents named by shown path or path on disk.

    An upload's name means that upload alone. Its file in the folder `uploads` is deleted.
    """
    if everything == bool(paths):
        return _refuse("name the documents to remove, or give --all")

    def work(library: Library) -> int:
        forget_unread(settings)
        own = {path: named_uploads(path, library.files(), uploads) for path in paths} if uploads is not None else {}
        rest = [path for path in paths if not own.get(path)]
        removed = 0
        if everything or rest:
            with forgetting_states(settings.document_store):
                removed = library.remove("all" if everything else rest)
        gone = [file for files in own.values() for file in files]
        if gone:
            _delete(gone)
            removed += len(gone)
            try:
                with forgetting_states(settings.document_store):
                    library.remove(gone)
            except LibraryLocked:
                say("deleted; the daemon is reading and removes them from the library next")
        say(f"{pluralise(removed, 'document')} removed")
        return DONE if removed or everything else INCOMPLETE

    return _with_library(settings, work)


def _delete(files: Sequence[str]) -> None:
    for file in files:
        try:
            Path(file).unlink(missing_ok=True)
        except OSError as error:
            raise PathError(f"{file} can't be deleted: {(error.strerror or str(error)).lower()}") from None


def prefill_library(settings: Settings) -> int:
    """Computes every chunk's keys and values before use, as the daemon would."""
    if not settings.document_store_bytes:
        return _refuse("document_store_bytes is 0: the results could not be stored; set it above 0")

    def work(library: Library) -> int:
        texts = library.texts()
        if not texts:
            say(_empty(settings))
            return DONE
        from common.engine.model.decoder import load_decoder, load_format
        from common.library.prefill import prefill_chunks as compute

        decoder = load_decoder(settings)
        form = load_format(settings, decoder.tokenizer)
        with progress_bar("computing", in_bytes=False) as reached:
            report = compute(decoder, form, texts, lambda done: reached(done, len(texts), "", ""))
        decoder.close()
        _tell_prefill(report, settings)
        return INCOMPLETE if report.too_long or report.beyond or report.failed else DONE

    return _with_library(settings, work)


def search_documents(settings: Settings, query: str, k: int | None = None) -> int:
    """Shows the chunks most similar to `query`; `k` defaults to `settings.documents`."""
    if not query.strip():
        return _refuse("the query is empty")
    if k is not None and k < 1:
        return _refuse(f"the number of hits must be at least 1, not {k}")

    def work(library: Library) -> int:
        _limit_threads(settings)
        hits = library.search(query, settings.documents if k is None else k)
        if not hits:
            say("nothing found" if library.count else f"nothing found: {_empty(settings)}")
            return INCOMPLETE
        rows = [(f"{hit.similarity:.3f}", hit.title, hit.path, hit.place, _excerpt(hit.text)) for hit in hits]
        show_table(("similarity", "title", "path", "place", "text"), rows)
        return DONE

    return _with_library(settings, work)


def _with_library(settings: Settings, work: Callable[[Library], int]) -> int:
    try:
        make_private(settings.private_folders)
        with open_library(settings) as library:
            return work(library)
    except (LibraryError, ModelError) as error:
        return _refuse(str(error))


def _limit_threads(settings: Settings) -> None:
    if settings.threads is not None:
        import torch  # takes a second to import, and listing documents does not need it

        torch.set_num_threads(settings.threads)


def _tell(path: Path, report: AddReport) -> None:
    for name, reason in report.skipped:
        say(f"skipped {name}: {reason}")
    for name, remark in report.remarks:
        say(f"about {name}: {remark}")
    for name, first in report.duplicates:
        say(f"passed over {name}: it has the same content as {first}")
    counts = (
        f"{report.added} added",
        f"{report.updated} updated",
        f"{report.unchanged} unchanged",
        *([f"{report.moved} moved"] if report.moved else []),
        f"{report.removed} removed",
        f"{len(report.skipped)} skipped",
    )
    say(f"{path}: {', '.join(counts)}; {pluralise(report.chunks, 'chunk')} embedded")
    if report.ignored:
        say(f"{pluralise(sum(report.ignored.values()), 'file')} of other types ignored: {_listed(report.ignored)}")
    if report.passed_over:
        folders = f"{pluralise(sum(report.passed_over.values()), 'folder')} (hidden, installed or built)"
        say(f"{folders} passed over: {_listed(report.passed_over)}; name a folder to read it")


def _listed(counts: Mapping[str, int]) -> str:
    kinds = sorted(counts.items(), key=lambda kind: (-kind[1], kind[0]))
    named = ", ".join(f"{count} {kind or 'without an ending'}" for kind, count in kinds[:_KINDS])
    return f"{named}, ..." if len(kinds) > _KINDS else named


def _tell_prefill(report: PrefillReport, settings: Settings) -> None:
    say(f"{pluralise(report.computed, 'chunk')} computed, {report.there} there already")
    if report.beyond:
        say(f"{pluralise(report.beyond, 'chunk')} left out: document_store_bytes is too small for all")
    if report.too_long:
        say(f"{pluralise(report.too_long, 'chunk')} left out: longer than the model's context")
    if report.failed:
        say(f"{pluralise(report.failed, 'chunk')} could not be written to {settings.document_store}")


def _empty(settings: Settings) -> str:
    return f"the library is empty: `dragon library add --role {settings.role} FOLDER` fills it"


def _refuse(text: str) -> int:
    say(f"dragon: {text}")
    return IMPOSSIBLE


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"
