"""Durable changes to files and directories of this host: a power failure leaves the old content or the new one."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

NEW = ".new"
"""End of the names of incomplete files. A killed process can leave such a file; nothing reads it."""


def write_durably(path: Path, content: str | bytes) -> None:
    """Replace the content of a file atomically and durably; after a failure the file has its old content.

    Raises:
        OSError: the file cannot be written, for example because the disk is full.
    """
    # Two processes that write the same file at a time must not write into the same new file.
    aside = path.with_name(f".{path.name}.{uuid4().hex[:8]}{NEW}")
    try:
        with aside.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(aside, path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            # A failed write() or fsync() names no file.
            error.filename = str(path)
        raise


def rename_durably(old: Path, new: Path) -> None:
    """Rename a file or directory durably within one directory; an existing file with the new name is replaced.

    The content of the file must be durable already.

    Raises:
        OSError: the rename failed.
    """
    old.rename(new)
    sync_directory(new.parent)


def make_directory(path: Path, *, exist_ok: bool = False) -> None:
    """Create a directory and its missing parents durably.

    Raises:
        FileExistsError: the path exists already; with ``exist_ok``: as something other than a directory.
        OSError: the directory cannot be created.
    """
    missing = [parent for parent in path.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        sync_directory(parent.parent)
    path.mkdir(exist_ok=exist_ok)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable (fsync).

    Raises:
        OSError: the directory cannot be opened or synchronized.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, for example those of FUSE, cannot synchronize a directory.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Make a directory durable with all regular files and directories below it. Files that vanish are left out.

    Raises:
        OSError: a file or directory cannot be opened or synchronized.
    """
    for file in _regular_files(path):
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _regular_files(path: Path) -> Iterator[str]:
    """Yield the regular files below a directory; each directory is made durable after its files were yielded."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _regular_files(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
    sync_directory(path)
