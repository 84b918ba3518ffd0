# No pathlib: a machine may have a minimal Python.
"""Saves files and folders with their attributes, restores them, and stores the snapshot of a run on its machine.

A snapshot is created and removed atomically: after a power cut it is complete or does not exist.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from . import config

ROOT = "/var/lib/raidproof"
"""Folder of the snapshots."""
PREFIX, PARTIAL, GONE = "snapshot.", ".new", "gone."
"""Parts of folder names: a snapshot has PREFIX and, while it is incomplete, PARTIAL; a discarded one has GONE."""
SNAPSHOT, SETTLED = "snapshot.json", "settled.json"
"""The files of a snapshot: the state at `take`, and the client records at `settle`."""
LARGEST = 64 << 20
"""Maximum size of a saved file in bytes; configuration files are smaller."""

Entry = dict[str, Any]
"""Kind, content and attributes of one file, folder or symbolic link."""
Tree = dict[str, Entry]
"""Entries by path."""


def path_of(run: str) -> str:
    """Return the folder of a run's snapshot."""
    return os.path.join(ROOT, PREFIX + run)


def sweep() -> None:
    """Remove incomplete snapshots, whose runs have not changed the machine, and discarded snapshots."""
    for name in _listed():
        if name.startswith(GONE) or (name.startswith(PREFIX) and name.endswith(PARTIAL)):
            shutil.rmtree(os.path.join(ROOT, name), ignore_errors=True)


def complete() -> list[str]:
    """Return the runs with a complete snapshot on this machine: their changes are not yet restored."""
    return [name[len(PREFIX) :] for name in _listed() if name.startswith(PREFIX) and not name.endswith(PARTIAL)]


def _listed() -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(ROOT))
    return []


def commit(run: str, snapshot: dict[str, Any], program: str) -> None:
    """Write the snapshot of a run, with a copy of the keeper's folder ``program``; rename it to its final name."""
    final = path_of(run)
    aside = final + PARTIAL
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside, mode=0o700)
    os.chmod(ROOT, 0o700)  # the snapshots contain copies of files that only root may read
    package = os.path.join(aside, os.path.basename(program))
    os.mkdir(package)
    for name in sorted(os.listdir(program)):
        if name.endswith(".py"):
            with open(os.path.join(program, name), "rb") as file:
                write(os.path.join(package, name), file.read())
    write(os.path.join(aside, SNAPSHOT), json.dumps(snapshot).encode())
    for folder in (package, aside, ROOT):
        sync_folder(folder)
    os.rename(aside, final)
    sync_folder(ROOT)
    sync_folder(os.path.dirname(ROOT))


def add(run: str, name: str, content: dict[str, Any]) -> None:
    """Add a file to the snapshot of a run, atomically."""
    path = os.path.join(path_of(run), name)
    write(path + PARTIAL, json.dumps(content).encode())
    os.replace(path + PARTIAL, path)
    sync_folder(path_of(run))


def load(run: str, name: str) -> dict[str, Any] | None:
    """Return the content of a file of a snapshot, or None if the file does not exist."""
    try:
        with open(os.path.join(path_of(run), name), "rb") as file:
            content: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return content


def discard(run: str) -> None:
    """Remove the snapshot of a run atomically: rename it first."""
    gone = os.path.join(ROOT, GONE + run)
    os.replace(path_of(run), gone)
    sync_folder(ROOT)
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):  # the folder has other files of raidproof
        os.rmdir(ROOT)


def save(roots: Iterable[str], skip: Iterable[str] = ()) -> Tree:
    """Return every file, folder and symbolic link at and below the roots, by path, without the paths in ``skip``.

    Roots that do not exist, mount points, sockets and devices are left out.
    """
    tree: Tree = {}
    omitted = frozenset(skip)
    for root in roots:
        _save(root, omitted, tree)
    return tree


def _save(path: str, skip: frozenset[str], tree: Tree) -> None:
    if path in skip:
        return
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    entry: Entry = {
        "mode": stat.S_IMODE(found.st_mode),
        "owner": [found.st_uid, found.st_gid],
        "mtime_ns": found.st_mtime_ns,
        "xattrs": _xattrs(path),
    }
    tree[path] = entry
    if stat.S_ISLNK(found.st_mode):
        entry.update(kind="link", target=os.readlink(path))
    elif stat.S_ISREG(found.st_mode):
        if found.st_size > LARGEST:
            raise ValueError(f"cannot save {path}: the file has {found.st_size} bytes, the limit is {LARGEST} bytes")
        with open(path, "rb") as file:
            entry.update(kind="file", content=base64.b64encode(file.read()).decode())
    elif stat.S_ISDIR(found.st_mode):
        if os.path.ismount(path):
            del tree[path]
            return
        entry.update(kind="folder")
        for name in sorted(os.listdir(path)):
            _save(os.path.join(path, name), skip, tree)
    else:
        del tree[path]


def _xattrs(path: str) -> dict[str, str]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {name: base64.b64encode(os.getxattr(path, name, follow_symlinks=False)).decode() for name in names}
    except OSError:  # the file system does not support extended attributes
        return {}


def differences(saved: Tree, found: Tree) -> list[str]:
    """Return a description of each difference between two trees."""
    different = []
    for path in sorted({*saved, *found}):
        if path not in found:
            different.append(f"{path} is missing")
        elif path not in saved:
            different.append(f"{path} is new")
        elif saved[path] != found[path]:
            keys = sorted({*saved[path], *found[path]})
            changed = ", ".join(key for key in keys if saved[path].get(key) != found[path].get(key))
            different.append(f"{path} differs in {changed}")
    return different


def restore(saved: Tree, roots: Iterable[str], skip: Iterable[str] = ()) -> Tree:
    """Restore the files at and below the roots, without the paths in ``skip``; return the replaced entries."""
    found = save(roots, skip)
    replaced = {path: entry for path, entry in found.items() if saved.get(path) != entry}
    changed = [path for path, entry in saved.items() if found.get(path) != entry]
    touched = {os.path.dirname(path) for path in {*replaced, *changed}}
    # The content of a folder must be removed before the folder.
    for path in sorted(replaced, reverse=True):
        if path not in saved or saved[path]["kind"] != replaced[path]["kind"]:
            _remove(path, replaced[path])
    for path in sorted(changed):
        _make(path, saved[path], found.get(path))
    # Folders last, deepest first: creating and removing files changed their times.
    for path in sorted(touched | set(changed), reverse=True):
        if path in saved and saved[path]["kind"] == "folder":
            _dress(path, saved[path])
    for folder in touched:
        sync_folder(folder)
    return replaced


def _remove(path: str, entry: Entry) -> None:
    if entry["kind"] == "folder":
        try:
            os.rmdir(path)
        except OSError:
            return  # not empty: the comparison after the restoration reports the folder
    else:
        os.unlink(path)


def _make(path: str, entry: Entry, found: Entry | None) -> None:
    if entry["kind"] == "folder":
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
        return
    same = found is not None and all(found.get(key) == entry.get(key) for key in ("kind", "content", "target"))
    if same and entry["kind"] == "file":
        _dress(path, entry)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = f"{path}.raidproof"
    if os.path.lexists(aside):
        os.unlink(aside)
    if entry["kind"] == "link":
        os.symlink(entry["target"], aside)
        _dress(aside, entry)
        os.replace(aside, path)
        return
    write(aside, base64.b64decode(entry["content"]), lambda: _dress(aside, entry))
    try:
        os.replace(aside, path)
    except OSError:  # a mount point: the file can be written, but not replaced
        os.unlink(aside)
        write(path, base64.b64decode(entry["content"]), lambda: _dress(path, entry))


def write(path: str, content: bytes, dress: Callable[[], None] = lambda: None) -> None:
    """Write a file, call ``dress`` to set its attributes, and call fsync."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        dress()
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Call fsync on a folder, which makes changes of its names durable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dress(path: str, entry: Entry) -> None:
    os.chown(path, *entry["owner"], follow_symlinks=False)
    if entry["kind"] != "link":
        # After chown(2), because chown clears the set-user-ID bit.
        os.chmod(path, entry["mode"])
    if _xattrs(path) != entry["xattrs"]:
        for name in _xattrs(path).keys() - entry["xattrs"].keys():
            os.removexattr(path, name, follow_symlinks=False)
        for name, value in entry["xattrs"].items():
            os.setxattr(path, name, base64.b64decode(value), follow_symlinks=False)
    os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]), follow_symlinks=False)


def missing(directories: list[str]) -> list[str]:
    """Return the directories and their parents that do not exist, the deepest first."""
    absent = set()
    for directory in directories:
        path = os.path.abspath(directory)
        while not os.path.exists(path):
            absent.add(path)
            path = os.path.dirname(path)
    return sorted(absent, reverse=True)


def remove_folders(were_missing: list[str]) -> None:
    """Remove the empty ones of the folders that did not exist at the snapshot."""
    for path in were_missing:
        with suppress(OSError):
            os.rmdir(path)


def absent() -> list[str]:
    """Return the paths in `config.OUR_FOLDERS` that do not exist."""
    return [path for path in config.OUR_FOLDERS if not os.path.lexists(path)]


def remove_ours(were_absent: list[str]) -> None:
    """Remove raidproof's folders (`config.OUR_FOLDERS`) that did not exist at the snapshot, with their content."""
    for path in were_absent:
        shutil.rmtree(path, ignore_errors=True)


def links() -> list[str]:
    """Return the symbolic links in /dev/disk/by-id that raidproof has created."""
    return sorted(glob.glob(config.OUR_LINKS))


def remove_links(before: list[str]) -> None:
    """Remove raidproof's symbolic links that did not exist at the snapshot."""
    for path in set(links()) - set(before):
        with suppress(FileNotFoundError):
            os.unlink(path)
