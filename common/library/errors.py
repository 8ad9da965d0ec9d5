"""Errors of a library, each with one sentence for the user."""

from __future__ import annotations


class LibraryError(Exception):
    """A library can't do what was asked; the text says what is wrong and what to do."""


class PathError(LibraryError):
    """A path that was named has no documents: it is not there, can't be read, or is of a type that is not read."""


class NotWatched(PathError):
    """A folder that was to be read because it is watched is watched no more."""


class UnknownDocument(LibraryError):
    """A document that was asked for by its name is not there, or there are several of this name."""


class NoDocumentFits(LibraryError):
    """A pattern by which documents were to be chosen finds none."""

    def __init__(self, pattern: int) -> None:
        """`pattern` is its number, from 1 on."""
        super().__init__(f"pattern {pattern} finds no document of the library")
        self.pattern = pattern


class LibraryBusy(LibraryError):
    """Another process is changing the library."""


class LibraryLocked(LibraryBusy):
    """Another process is changing the library, so that nothing of a change was begun."""


class LibraryDamaged(LibraryError):
    """The database itself is damaged: a page, a checksum or the file's format."""


class LibraryFull(LibraryError):
    """The disk is full. What was committed before is kept."""


class EmbedderChanged(LibraryError):
    """The library was embedded by another model: its similarities would mean nothing."""


class EmbedderError(LibraryError):
    """The embedding model can't be found, loaded or trusted to give unit vectors."""
