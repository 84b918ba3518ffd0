"""What killed runs left behind: found by what they noted about themselves, and removed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from raidproof.core.errors import RigError
from raidproof.core.waiting import wall_clock
from raidproof.image import cache
from raidproof.image.kernel.probe import PROBE_DEADLINE_S, SCRATCH_PREFIX
from raidproof.lab.lab_directory import LabDirectory, LabEntry, all_labs


def collect(*, kept: bool = False) -> Iterator[str]:
    """Remove everything that no living run needs, and say of each thing what was done.

    What is running is left alone; a lab that was kept is ended only with ``kept``.
    """
    for lab in all_labs():
        yield from _lab(lab, kept=kept)
    yield from (f"removed {what}" for what in cache.sweep())
    yield from (f"removed {path}, of a kernel's trial" for path in _trials())


def _lab(lab: LabDirectory, *, kept: bool) -> Iterator[str]:
    try:
        entry = lab.entry
    except RigError as error:
        yield f"left alone lab {lab.name}: {error}"
        return
    if entry is None:
        if not lab.path.exists():
            return  # its harness has removed it meanwhile
        yield f"removed lab {lab.name}: whoever began to make it was killed"
    elif not entry.running:
        ended = entry.keeper is not None and entry.keeper.kill()
        yield f"{'ended and ' * ended}removed lab {lab.name}: {_why(entry)}"
    elif entry.kept and kept:
        assert entry.keeper is not None  # noqa: S101  it runs
        entry.keeper.kill()
        yield f"ended and removed lab {lab.name}, which was kept"
    elif entry.kept:
        yield f"left alone lab {lab.name}, which was kept (./raidproof gc --kept ends it)"
        return
    else:
        return
    lab.remove()
    if lab.path.exists():
        raise RigError(f"cannot remove {lab.path}", remedy="remove it by hand")


def _why(entry: LabEntry) -> str:
    return "it was kept, and has ended" if entry.kept else f"process {entry.harness.pid}, which made it, was killed"


def _trials() -> Iterator[Path]:
    """Remove the folders of kernels' trials that were killed: those which are older than any trial can be."""
    now = wall_clock().timestamp()
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*")):
        status = path.lstat()
        if status.st_uid == os.getuid() and now - status.st_mtime > 2 * PROBE_DEADLINE_S:
            shutil.rmtree(path)
            yield path
