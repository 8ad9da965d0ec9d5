"""Errors of a library, each with one sentence for the user."""

from __future__ import annotations


class LibraryError(Exception):
    """A library cannot fulfil a request; the text states problem and remedy."""


class PathError(LibraryError):
    """A named path has no documents: missing, unreadable or of another type."""


class NotWatched(PathError):
    """A folder to be reread is no longer watched."""


class UnknownDocument(LibraryError):
    """No document, or more than one, has the requested name."""


class NoDocumentFits(LibraryError):
    """A pattern of documents matches none."""

    def __init__(self, pattern: int) -> None:
        """`pattern` is its number, from 1 on."""
        super().__init__(f"pattern {pattern} finds no document of the library")
        self.pattern = pattern


class LibraryBusy(LibraryError):
    """Another process is changing the library."""


class LibraryLocked(LibraryBusy):
    """Another process is changing the library, so no change was begun."""


class LibraryDamaged(LibraryError):
    """The database itself is damaged: a page, a checksum or the file's format."""


class LibraryFull(LibraryError):
    """The disk is full; earlier commits are kept."""


class EmbedderChanged(LibraryError):
    """Another model embedded the library: its similarities would mean nothing."""


class EmbedderError(LibraryError):
    """The embedding model cannot be found, loaded or trusted to give unit vectors."""
