"""Artefacts that are built once for all labs: kernels, images; each in a folder named after its inputs.

A build runs beside its final place, under a lock, and is then renamed into that place: so there is no partial
artefact, despite concurrent or interrupted builds.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
"""A builder's working folder in its partial artefact, or a link to one outside; never part of the result."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def root() -> Path:
    """Return the cache's folder: ``$RAIDPROOF_CACHE``, or ``raidproof`` in the user's cache folder."""
    if own := os.environ.get("RAIDPROOF_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "raidproof"


def digest(*parts: str | bytes) -> str:
    """Return the address of an artefact that is made from these parts, in this order."""
    hashed = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(f"{len(data)}:".encode() + data)
    return hashed.hexdigest()[:24]


def place(kind: str, recipe_digest: str) -> Path:
    """Return the path of an artefact, built or not."""
    return root() / kind / recipe_digest


def build(kind: str, recipe_digest: str, builder: Callable[[Path], None]) -> Path:
    """Return the artefact's folder; if there is none yet, let ``builder`` fill a new one.

    The builder gets an empty folder that becomes the artefact when the builder returns.

    Raises:
        RigError: no room, or another process' build of the same artefact did not end in time.
    """
    final = place(kind, recipe_digest)
    if final.is_dir():
        return final
    try:
        with _lock(kind, recipe_digest, wait=True):
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
    """Remove the remains of killed builds, and return what was removed. Running builds are left alone."""
    said = []
    for partial in sorted(root().glob(f"*/*{PARTIAL}")):
        kind, recipe_digest = partial.parent.name, partial.name.removesuffix(PARTIAL)
        try:
            with _lock(kind, recipe_digest, wait=False):
                _remove(partial)
        except BlockingIOError:
            logger.info("still being built: %s", partial)
        else:
            said.append(f"half-built {kind} {partial}")
    return said


@contextmanager
def _lock(kind: str, recipe_digest: str, *, wait: bool) -> Iterator[None]:
    """Hold the artefact's lock; without ``wait``, raise BlockingIOError if another process holds it.

    The lock files stay: removing one for which a process waits would admit two processes at once.
    """
    path = root() / "locks" / f"{kind}-{recipe_digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            step(f"waiting for another raidproof, which is building the same {kind}")
            wait_until(
                lambda: _try_lock(file.fileno()),
                Deadline.after(BUILD_DEADLINE_S),
                f"another raidproof to finish the {kind}; its lock is {path}",
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
    # rm, not rmtree: it stays on one file system, in case a killed build has left the host's /dev mounted there.
    remove = ["rm", "-rf", "--one-file-system", "--", str(path)]

    def gone() -> bool:
        if not command.run(remove, deadline_s=BUILD_DEADLINE_S).ok and os.geteuid() != 0:
            # An unprivileged build's files belong to the user's subordinate ids.
            command.run(["unshare", "--user", "--map-root-user", "--map-auto", *remove])
        return not path.exists()

    try:
        # A killed build's last processes may still be writing.
        wait_until(gone, Deadline.after(REMOVE_DEADLINE_S), f"{path} to go", interval_s=0.2)
    except DeadlineExceeded as error:
        raise RigError(f"cannot remove {path}", remedy="remove it by hand") from error


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
            f"cannot write to the cache: {error}", remedy="set RAIDPROOF_CACHE to a folder that you may write to"
        )
    return RigError(f"the cache cannot be used: {error}")


def no_room(where: Path) -> RigError:
    """Return the error of a build that found the disk full."""
    remedy = "free 2 GB on that file system, or set RAIDPROOF_CACHE to a folder on another one"
    return RigError(f"no room left in {where}", remedy=remedy)
