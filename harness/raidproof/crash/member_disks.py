"""The member disks of a checker: in the memory of its machine, or disks of the disk engine."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from raidproof.core.units import KIB
from raidproof.crash.states import BLANK, BLOCK, Patch
from raidproof.disk.client import EngineClient
from raidproof.disk.writelog import MemberInfo, data_of, new_log
from raidproof.machine.machine import Machine
from raidproof.storage.array import disk_path

Ask = Callable[[dict[str, Any], Sequence[bytes]], Any]
"""Sends a request to the agent of a checker, followed by raw bytes, and returns the answer."""
_COPY = 1 << 20
_AT_ONCE = 16 << 20
"""Bytes that are sent to the agent in one request."""


class MemberMemory:
    """The members of a checker in the memory of its machine (`raidproof.guest.member_disks`).

    Files on the host have the base content too: a machine gets it from them after each boot.
    """

    def __init__(self, members: Sequence[MemberInfo], folder: Path) -> None:
        """Create the host's files, blank, in a folder.

        Raises:
            OSError: a file exists, or cannot be created.
        """
        self.members = tuple(members)
        self._undo = ExitStack()
        self._bases = [
            self._blank(folder / f"base{number}", member.size) for number, member in enumerate(self.members)
        ]

    def _blank(self, path: Path, size: int) -> int:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._undo.callback(os.close, fd)
        os.ftruncate(fd, size)
        return fd

    def close(self) -> None:
        """Close the host's files."""
        self._undo.close()

    @property
    def config(self) -> dict[str, list[Any]]:
        """The part of the agent's config that makes it create the members: their sizes in bytes, and their paths."""
        return {
            "sizes": [member.size for member in self.members],
            "links": [disk_path(member.serial) for member in self.members],
        }

    def prepare(self, machine: Machine) -> bool:
        """Load the kernel modules for the members in a machine; return whether the kernel has them.

        The module brd must not be loaded yet: it takes number and size of its disks when it is loaded.
        """
        largest_kib = -(-max(member.size for member in self.members) // BLOCK) * BLOCK // KIB
        disks = ["brd", f"rd_nr={2 * len(self.members)}", f"rd_size={largest_kib}"]
        return all(machine.run(["modprobe", *module]).status == 0 for module in (disks, ["dm-snapshot"]))

    def connected(self, ask: Ask) -> None:
        """Send the base content to the agent of a newly booted machine."""
        runs = ((member, at, data) for member, fd in enumerate(self._bases) for at, data in content_of(fd))
        self._send(ask, "advance", runs)

    def show(self, patch: Patch, ask: Ask | None, *, keep: bool = False) -> None:
        """Restore the base content, then apply a patch; ``keep``: the result becomes the new base content.

        ``ask`` sends a request to the machine's agent; None: the machine is off, and gets the base when it has booted.
        """
        worth = self._worth_writing(patch)
        if keep:
            for member, offset, data in self._cut(worth):
                os.pwrite(self._bases[member], data, offset)
        if ask is None:
            return
        if keep:
            self._send(ask, "advance", self._cut(worth))
        else:
            request(ask, "show", list(self._cut(worth)))

    def _send(self, ask: Ask, verb: str, runs: Iterable[tuple[int, int, bytes]]) -> None:
        """Send runs in several requests, so that each ends well before its deadline."""
        part: list[tuple[int, int, bytes]] = []
        size = 0
        for run in runs:
            part.append(run)
            size += len(run[2])
            if size >= _AT_ONCE:
                request(ask, verb, part)
                part, size = [], 0
        request(ask, verb, part)

    def _cut(self, patch: Patch) -> Iterator[tuple[int, int, bytes]]:
        """Yield the runs of a patch; the last block of a member may be shorter than the others."""
        for member, offset, data in patch.runs():
            yield member, offset, data[: self.members[member].size - offset]

    def _worth_writing(self, patch: Patch) -> Patch:
        """Return the patch without blocks of zeroes where the base has a hole: they would take memory."""

        def hole(member: int, block: int) -> bool:
            try:
                return os.lseek(self._bases[member], block * BLOCK, os.SEEK_DATA) >= (block + 1) * BLOCK
            except OSError:  # ENXIO: the file has no data after this offset (lseek(2))
                return True

        return Patch({at: data for at, data in patch.blocks.items() if data_of(data) != BLANK or not hole(*at)})

    def save(self, patch: Patch, path: Path) -> None:
        """Write the base content with a patch applied to the file ``path``, as a write log for blank disks.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        save_log(self.members, self._bases, patch, path)


def request(ask: Ask, verb: str, runs: Sequence[tuple[int, int, bytes]]) -> None:
    """Send runs of blocks to the agent, with their content after the request's line."""
    ask({"verb": verb, "runs": [(member, at, len(data)) for member, at, data in runs]}, [data for *_, data in runs])


def save_log(members: Sequence[MemberInfo], files: Sequence[int], patch: Patch, path: Path) -> None:
    """Write the contents of the members with a patch applied to the file ``path``, as a write log.

    ``files``: file descriptors of the members' images.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    with new_log(path, members) as log:
        for member, fd in enumerate(files):
            for at, data in content_of(fd):
                log.write(0, member, at, (0, 0), data)
        patch.write_to(log, members)


def content_of(fd: int) -> Iterator[tuple[int, bytes]]:
    """Yield the data of a sparse file without its holes, in parts, each with its offset."""
    size, at = os.fstat(fd).st_size, 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # ENXIO: the rest of the file is a hole (lseek(2))
            return
        at = os.lseek(fd, start, os.SEEK_HOLE)
        for begin in range(start, at, _COPY):
            yield begin, os.pread(fd, min(_COPY, at - begin), begin)


class MemberEngine:
    """The members of a checker as disks of the disk engine.

    The cache mode is LYING, so that the flushes of a machine do not change the base content.
    """

    def __init__(self, members: Sequence[MemberInfo], engine: EngineClient, folder: Path) -> None:
        self.members = tuple(members)
        self.config: dict[str, list[Any]] = {}
        """Empty: the machine has these disks when it boots."""
        self._engine = engine
        self._folder = folder

    def close(self) -> None:
        """Do nothing: the lab ends the disk engine."""

    def prepare(self, _machine: Machine) -> bool:
        """Return True: the machine needs no preparation."""
        return True

    def connected(self, _ask: Ask) -> None:
        """Do nothing: the disk engine has the base content."""

    def show(self, patch: Patch, _ask: Ask | None = None, *, keep: bool = False) -> None:
        """Restore the base content, then apply a patch; ``keep``: the result becomes the new base content."""
        path = self._folder / "state.log"
        path.unlink(missing_ok=True)
        patch.write(path, self.members)
        self._engine.show(path, keep=keep)

    def save(self, patch: Patch, path: Path) -> None:
        """Write the base content with a patch applied to the file ``path``, as a write log for blank disks.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        with ExitStack() as undo:
            files = []
            for number, member in enumerate(self.members):
                image = self._folder / f"base{number}"
                self._engine.image(member.serial, image)
                files.append(os.open(image, os.O_RDONLY | os.O_CLOEXEC))
                undo.callback(os.close, files[-1])
                undo.callback(image.unlink)
            save_log(self.members, files, patch, path)
