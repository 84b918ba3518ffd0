"""The member disks of a checker: host files with User-mode Linux, disks of the disk engine with other providers."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

from raidproof.core.topology import MachineSpec, Role
from raidproof.crash.states import BLOCK, Patch, new_log
from raidproof.disk.client import EngineClient
from raidproof.disk.writelog import MemberInfo
from raidproof.provider.provider import Site
from raidproof.provider.uml import Uml, UmlPower
from raidproof.storage.array import disk_path

_FIRST = 3
"""Number of ubd devices (ubda, ubdb, ubdc) that a machine uses for its own system."""
MOST = 16 - _FIRST
"""Limit of member disks as files: User-mode Linux has 16 ubd devices (MAX_DEV in arch/um/drivers/ubd_kern.c)."""
_COPY = 1 << 20
_BLANK = bytes(BLOCK)


class MemberFiles:
    """The members of a checker with User-mode Linux, as host files.

    Each member has a shown file, which the machine uses, and a base file with the base content: the content of the
    member without the crash state of the current check.
    """

    def __init__(self, members: Sequence[MemberInfo]) -> None:
        self.members = tuple(members)
        self.paths: tuple[Path, ...] = ()
        self._files: list[tuple[int, int]] = []
        self._at_base = True
        """Whether the shown files have the base content: no state was shown since the last change of the base."""
        self._undo = ExitStack()

    def create(self, folder: Path) -> None:
        """Create the shown and base files in a folder; all files are blank.

        Raises:
            OSError: a file exists, or cannot be created.
        """
        self.paths = tuple(folder / f"member{number}" for number in range(len(self.members)))
        for path, member in zip(self.paths, self.members, strict=True):
            pair = []
            for one in (path, path.with_suffix(".base")):
                fd = os.open(one, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
                self._undo.callback(os.close, fd)
                os.ftruncate(fd, member.size)
                pair.append(fd)
            self._files.append((pair[0], pair[1]))

    def close(self) -> None:
        """Close the shown and base files."""
        self._undo.close()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Command line arguments of the User-mode Linux kernel that attach the shown files as ubd devices."""
        return tuple(f"ubd{letter}={path}" for letter, path in zip(self._letters, self.paths, strict=True))

    @property
    def links(self) -> list[list[str]]:
        """Symbolic links that the agent creates in the machine: path of each member, and its ubd device."""
        pairs = zip(self._letters, self.members, strict=True)
        return [[disk_path(member.serial), f"/dev/ubd{letter}"] for letter, member in pairs]

    @property
    def _letters(self) -> str:
        return ascii_lowercase[_FIRST : _FIRST + len(self.members)]

    def show(self, patch: Patch, *, keep: bool = False) -> None:
        """Restore the base content in the shown files, then apply a patch.

        ``keep``: the result becomes the new base content. The machine must not have the disks open.
        """
        if not self._at_base:
            self._undo_all()
        self._at_base = keep
        for member, offset, data in self._worth_writing(patch).runs():
            whole = data[: self.members[member].size - offset]
            for fd in self._files[member] if keep else self._files[member][:1]:
                os.pwrite(fd, whole, offset)

    def _undo_all(self) -> None:
        buffer = memoryview(bytearray(_COPY))
        for shown, base in self._files:
            # Blocks that the machine has written are data in the shown file. Blocks that the machine has discarded or
            # zeroed may be holes in the shown file and data only in the base: ubd punches holes for discards and
            # write-zeroes, which md issues to empty a partial parity log. A hole in the base reads as zeroes.
            for start, end in union([*extents(shown), *extents(base)]):
                for at in range(start, end, _COPY):
                    part = buffer[: min(_COPY, end - at)]
                    os.preadv(base, [part], at)
                    os.pwrite(shown, part, at)

    def _worth_writing(self, patch: Patch) -> Patch:
        """Return the patch without blocks of zeroes at holes of the shown files.

        A new file system's log has many such blocks, and each would take time at the next restoration of the base.
        """

        def hole(member: int, block: int) -> bool:
            try:
                return os.lseek(self._files[member][0], block * BLOCK, os.SEEK_DATA) >= (block + 1) * BLOCK
            except OSError:  # ENXIO: the file has no data after this offset (lseek(2))
                return True

        return Patch({at: data for at, data in patch.blocks.items() if data != _BLANK or not hole(*at)})

    def save(self, patch: Patch, path: Path) -> None:
        """Write the base content with a patch applied to the file ``path``, as a write log for blank disks.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        save_log(self.members, [base for _, base in self._files], patch, path)


def save_log(members: Sequence[MemberInfo], files: Sequence[int], patch: Patch, path: Path) -> None:
    """Write the contents of the members with a patch applied to the file ``path``, as a write log.

    ``files``: file descriptors of the members' images.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    with new_log(path, members) as log:
        for member, fd in enumerate(files):
            for start, end in extents(fd):
                for at in range(start, end, _COPY):
                    log.write(0, member, at, (0, 0), os.pread(fd, min(_COPY, end - at), at))
        patch.write_to(log, members)


def extents(fd: int) -> list[tuple[int, int]]:
    """Return the byte ranges (start, end) of a sparse file that are data, not holes."""
    found, size, at = [], os.fstat(fd).st_size, 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # ENXIO: the rest of the file is a hole (lseek(2))
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start, at))
    return found


def union(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of byte ranges (start, end), sorted, with overlapping and adjacent ranges joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


class UmlOnFiles(Uml):
    """The provider of a checker with User-mode Linux: its server has `MemberFiles` instead of the engine's disks."""

    def __init__(self, files: MemberFiles) -> None:
        super().__init__()
        self.files = files

    def furnish(self, site: Site) -> None:
        """Start the programs that all machines of the lab share, and create the member files."""
        super().furnish(site)
        self.files.create(site.directory)

    def power(self, spec: MachineSpec, site: Site) -> UmlPower:
        """Return the power switch of a machine; the server's kernel gets the member files as disks."""
        power = super().power(spec, site)
        if spec.role is Role.SERVER:
            arguments = (*power.kernel.arguments, *self.files.arguments)
            power.kernel, power.disks = replace(power.kernel, arguments=arguments), None
        return power


class MemberEngine:
    """The members of a checker as disks of the disk engine.

    The cache mode is LYING, so that the flushes of a machine do not change the base content.
    """

    def __init__(self, members: Sequence[MemberInfo], engine: EngineClient, folder: Path) -> None:
        self.members = tuple(members)
        self.links: list[list[str]] = []
        """Empty: the machine's init creates the links of these disks."""
        self._engine = engine
        self._folder = folder

    def close(self) -> None:
        """Do nothing: the lab ends the disk engine."""

    def show(self, patch: Patch, *, keep: bool = False) -> None:
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
