"""Relocation of what was added: a folder was moved, as to another disk, and a link has taken its place."""

from __future__ import annotations

import os

from common.library.places import is_within
from common.library.store import Store
from common.library.successors import is_read_alike, moved_to, pass_on


def relocate(store: Store, folder: str, place: str, base: str) -> tuple[int, int]:
    """Note that what was added as `folder`, or in it, is at `place` now; nothing where `folder` was not added. Call
    inside of `store.writing()`.

    A document goes whose new path is that of another one, or whose new name has it read otherwise. Returns how many of
    these left their place to a copy, and how many did not. `base` is the root of those that had one around `folder`.
    """
    if all(reading.root != folder for reading in store.readings.all()):
        return 0, 0
    records = store.files()
    taken = {record.path for record in records}
    passed_on = removed = 0
    for record in records:
        if not is_within(record.path, folder):
            continue
        path = _relocated(record.path, folder, place)
        if path not in taken and is_read_alike(record.path, path):
            root = _relocated(record.root, folder, place) if is_within(record.root, folder) else base
            store.move_file(moved_to(record, path, root))
        # Copies in either folder are read anyway.
        elif pass_on(store, record, lambda copy: is_within(copy.path, folder) or is_within(copy.path, place)):
            passed_on += 1
        else:
            store.remove_files([record.id])
            removed += 1
    store.relocate(folder, place)
    store.advance()
    return passed_on, removed


def _relocated(path: str, folder: str, place: str) -> str:
    """The path of what was at `path` in a folder, now that this one is at `place`."""
    return os.path.normpath(os.path.join(place, os.path.relpath(path, folder)))
