"""The cache of artefacts (kernels, images, boxes, results of trial boots); a folder's name is a digest of the inputs.

A build writes into a folder of another name, under a lock, and renames it when the artefact is complete. So no process
sees a partial artefact, even if builds are concurrent or interrupted.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import DeadlineExceeded, RequirementMissing, RigError
from raidproof.core.log import logger, step
from raidproof.core.waiting import Deadline, wait_until

BUILD_DEADLINE_S = 1800.0
REMOVE_DEADLINE_S = 10.0
PARTIAL = ".partial"
SCRATCH = "scratch"
"""The name, in a partial artefact, of the builder's working folder or of a link to this folder; a build removes it."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def root() -> Path:
    """Return the cache's folder: ``$RAIDPROOF_CACHE``, or ``raidproof`` in the user's cache folder."""
    if own := os.environ.get("RAIDPROOF_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "raidproof"


def digest(*parts: str | bytes) -> str:
    """Return the address of an artefact (its folder's name): 24 hexadecimal digits of the SHA-256 of its inputs."""
    hashed = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(f"{len(data)}:".encode() + data)
    return hashed.hexdigest()[:24]


def place(kind: str, recipe_digest: str) -> Path:
    """Return the path of an artefact, whether it exists or not."""
    return root() / kind / recipe_digest


def build(kind: str, recipe_digest: str, builder: Callable[[Path], None]) -> Path:
    """Return the folder of an artefact; if it does not exist, build it.

    ``builder`` gets an empty folder, which becomes the artefact when the builder returns.

    Raises:
        RequirementMissing: this user may not write to the cache.
        RigError: the file system is full, or another process has built the same artefact for `BUILD_DEADLINE_S`.
    """
    final = place(kind, recipe_digest)
    if final.is_dir():
        return final
    try:
        with locked(kind, recipe_digest, wait=True):
            if not final.is_dir():
                _build_aside(final, builder)
    except OSError as error:
        raise _explained(error) from error
    return final


def _build_aside(final: Path, builder: Callable[[Path], None]) -> None:
    partial = final.with_name(final.name + PARTIAL)
    _remove(partial)
    partial.mkdir(mode=0o700, parents=True)
    try:
        builder(partial)
        _remove_scratch(partial)
        _make_durable(partial)
        partial.rename(final)
        _fsync(final.parent)
    except BaseException:
        _remove(partial)
        raise


def sweep() -> list[str]:
    """Remove the partial artefacts of killed builds, not of running ones; return descriptions of those removed."""
    removed = []
    for partial in sorted(root().glob(f"*/*{PARTIAL}")):
        kind, recipe_digest = partial.parent.name, partial.name.removesuffix(PARTIAL)
        try:
            with locked(kind, recipe_digest, wait=False):
                _remove(partial)
        except BlockingIOError:
            logger.info("another process is building %s", partial)
        else:
            removed.append(f"partial build of {kind} {partial}")
    return removed


def trim(kind: str, keep: int) -> None:
    """Remove the least recently used folders of a kind but ``keep`` of them; folders in use by a process stay.

    This is for working folders, whose builder holds their lock and sets their modification time.
    """
    folders = sorted((root() / kind).iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[keep:]:
        with suppress(BlockingIOError), locked(kind, folder.name, wait=False):
            _remove_tree(folder)


@contextmanager
def locked(kind: str, recipe_digest: str, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of an artefact; without ``wait``, raise BlockingIOError if another process holds it.

    Lock files are never removed: if a process waited for a removed file, a third process could lock a new file at the
    same time.
    """
    path = root() / "locks" / f"{kind}-{recipe_digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            step(f"waiting for another raidproof process, which is building the same {kind}")
            wait_until(
                lambda: _try_lock(file.fileno()),
                Deadline.after(BUILD_DEADLINE_S),
                f"another raidproof process to finish building the same {kind} (it holds the lock {path})",
                interval_s=0.1,
            )
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.exists():
        _remove_scratch(path)
        _remove_tree(path)


def _remove_scratch(partial: Path) -> None:
    scratch = partial / SCRATCH
    if scratch.is_symlink():
        _remove_tree(scratch.readlink())
        scratch.unlink()
    elif scratch.exists():
        _remove_tree(scratch)


def _remove_tree(path: Path) -> None:
    # rm, not rmtree: a killed build may have left the host's /dev mounted in the tree, which rm does not enter.
    remove = ["rm", "-rf", "--one-file-system", "--", str(path)]

    def gone() -> bool:
        if not command.run(remove, deadline_s=BUILD_DEADLINE_S).ok and os.geteuid() != 0:
            # The owners of an unprivileged build's files are subordinate ids of the user.
            command.run(["unshare", "--user", "--map-root-user", "--map-auto", *remove])
        return not path.exists()

    try:
        # Processes of a killed build may still write files.
        wait_until(gone, Deadline.after(REMOVE_DEADLINE_S), f"the removal of {path}", interval_s=0.2)
    except DeadlineExceeded as error:
        raise RigError(f"the folder {path} of a build cannot be removed", remedy="remove it by hand") from error


def _make_durable(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            _fsync(path)
    _fsync(folder)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(error: OSError) -> RigError | RequirementMissing:
    if error.errno in _NO_ROOM:
        return no_room(root())
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return RequirementMissing(
            f"cannot write to raidproof's cache {root()}: {error}",
            remedy="set RAIDPROOF_CACHE to a folder that you may write to",
        )
    return RigError(f"raidproof's cache {root()} cannot be used: {error}")


def no_room(where: Path) -> RigError:
    """Return the error for a build whose file system is full; ``where`` is the folder of the build."""
    remedy = f"free 2 GB on the file system of {where}, or set RAIDPROOF_CACHE to a folder on another file system"
    return RigError(f"the file system of {where} is full", remedy=remedy)
