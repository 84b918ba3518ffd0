# A minimal Python: no pathlib.
"""Location of a snapshot on its machine; every step is atomic with respect to a power cut."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from typing import Any

from . import trees

ROOT = "/var/lib/raidproof"
PREFIX, PARTIAL, GONE = "snapshot.", ".new", "gone."
SNAPSHOT, SETTLED = "snapshot.json", "settled.json"


def path_of(run: str) -> str:
    """Return the folder of a run's snapshot."""
    return os.path.join(ROOT, PREFIX + run)


def sweep() -> None:
    """Remove snapshots that were never complete (nothing was changed yet), and discarded ones."""
    for name in _listed():
        if name.startswith(GONE) or (name.startswith(PREFIX) and name.endswith(PARTIAL)):
            shutil.rmtree(os.path.join(ROOT, name), ignore_errors=True)


def complete() -> list[str]:
    """Return the runs whose complete snapshot is here: their changes have not been undone."""
    return [name[len(PREFIX) :] for name in _listed() if name.startswith(PREFIX) and not name.endswith(PARTIAL)]


def _listed() -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(ROOT))
    return []


def commit(run: str, snapshot: dict[str, Any], program: str) -> None:
    """Write the snapshot, with the program that restores it, then rename it to its final name."""
    final = path_of(run)
    aside = final + PARTIAL
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside, mode=0o700)
    os.chmod(ROOT, 0o700)  # it holds copies of files that only root may read
    package = os.path.join(aside, os.path.basename(program))
    os.mkdir(package)
    for name in sorted(os.listdir(program)):
        if name.endswith(".py"):
            with open(os.path.join(program, name), "rb") as file:
                trees.write(os.path.join(package, name), file.read())
    trees.write(os.path.join(aside, SNAPSHOT), json.dumps(snapshot).encode())
    for folder in (package, aside, ROOT):
        trees.sync_folder(folder)
    os.rename(aside, final)
    trees.sync_folder(ROOT)
    trees.sync_folder(os.path.dirname(ROOT))


def add(run: str, name: str, content: dict[str, Any]) -> None:
    """Write a further file of a snapshot, atomically."""
    path = os.path.join(path_of(run), name)
    trees.write(path + PARTIAL, json.dumps(content).encode())
    os.replace(path + PARTIAL, path)
    trees.sync_folder(path_of(run))


def load(run: str, name: str) -> dict[str, Any] | None:
    """Return a file of a snapshot, or None if it was not written."""
    try:
        with open(os.path.join(path_of(run), name), "rb") as file:
            content: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return content


def discard(run: str) -> None:
    """Remove a snapshot atomically, by a rename before the removal."""
    gone = os.path.join(ROOT, GONE + run)
    os.replace(path_of(run), gone)
    trees.sync_folder(ROOT)
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):  # not empty: it holds other files of raidproof
        os.rmdir(ROOT)
