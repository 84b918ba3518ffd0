"""Reader of the ledger: it reads, on any machine, the files that `ledger_writer` has written on the clients.

The harness copies this file into machines, into the folder of ledger_writer.py: standard library only. The
command line names the configuration, a JSON file. The program prints the result of `read_back` as JSON.
"""

import errno
import itertools
import json
import os
import stat
import struct
import sys
from importlib import import_module
from typing import Any

# In a machine both files are in one folder, in the harness in a package.
ledger = import_module("raidproof.guest.ledger_format" if __package__ else "ledger_format")
application = import_module("raidproof.guest.application" if __package__ else "application")
pieces = import_module("raidproof.guest.ledger_pieces" if __package__ else "ledger_pieces")
BLOCK = ledger.BLOCK
WORDS = struct.Struct("<%dQ" % (BLOCK // 8))
MIXED = 8  # greatest number of generations in a torn block: a cut interrupts few writes of one block
SECTOR_UNITS = 15  # least number of whole units in a sector of a disk
LONGEST = 1 << 20  # greatest number of bytes beside the blocks that one read returns
FIRST_WRITE_S = 1200000000  # a time in seconds since 1970 before which no clock of a machine is
USUAL_XATTRS = {"system.nfs4_acl", "security.selinux"}  # of each file on an NFSv4 mount, or with SELinux
LARGEST = 1 << 24  # greatest size in bytes that is read of a file in a directory, or of a part without records
FAR = 1 << 27  # size in bytes from which on only the first and the last LONGEST bytes of zeros are read


def read_block(data: bytes, file: int, offset: int, seed: int, shift: int = 0) -> int:
    """Return the generation of a block of a file, or an error code (`ledger_format.GARBAGE`, for example).

    A torn block has a code of its own, see `torn`.

    ``shift``: offset of the block in its first page, in bytes. A block in two pages is written by two requests to the
    disks: if its parts have different generations, the older generation counts.
    """
    found = ledger.identity(data, seed)
    if found == ledger.GARBAGE and shift and len(data) == BLOCK:
        found = oldest(data, file, offset, seed, BLOCK - shift)
    if found == ledger.GARBAGE and (parts := parts_in(data, file, offset, seed)) is not None:
        return int(ledger.torn(*parts))
    return found if isinstance(found, int) else found[2] if found[:2] == (file, offset) else ledger.MISPLACED


def parts_in(data: bytes, file: int, offset: int, seed: int) -> tuple[int, int] | None:
    """Return the oldest and the newest generation in a torn block, of which each part has one generation or is zero.

    Return None for a block with any other content. A cut tears a request between sectors; ZFS divides one anywhere.
    """
    words = WORDS.unpack(data.ljust(BLOCK, b"\0")[:BLOCK])
    units = [words[at : at + 3] for at in range(5, len(words) - 3, 4)]  # file, offset and generation, each XOR seed
    # A generation of 0 in a unit is of a part that is zero, or the seed XOR itself, as in the units beside it.
    unsure = [unit == (file ^ seed, offset ^ seed, 0) and any(unit) for unit in units]
    near = [words[3] == seed, *unsure, False]
    seeds = [here and (before or after) for before, here, after in zip(near, unsure, near[2:])]  # noqa: B905
    # The generation in the header, and in each unit of the body.
    marks: list[int] = [words[3]]
    marks += [unit[2] ^ seed if unit[2] or is_seed else 0 for unit, is_seed in zip(units, seeds)]  # noqa: B905
    inner = [len(list(run)) for _, run in itertools.groupby(marks)][1:-1]
    if max(marks) >> ledger.TORN_SHIFT or len({*marks}) > MIXED or any(length < SECTOR_UNITS for length in inner):
        return None
    wholes = [WORDS.unpack(ledger.block(file, offset, one, seed)) for one in {mark or 1 for mark in marks}]
    # A part without a mark does not depend on the generation.
    if not all(one[0] in one[1:] for one in zip(words, bytes(len(words)), *wholes)):  # noqa: B905  not in Python 3.9
        return None
    return min(marks), max(marks)


def oldest(data: bytes, file: int, offset: int, seed: int, first: int) -> int:
    """Return the older generation of a block in two pages; ``first`` bytes of the block are in the first page."""
    found = []
    for start, end in ((0, first), (first, BLOCK)):
        part = data[start:end]
        generation = ledger.generation_of(data, start, seed) if any(part) else ledger.ABSENT
        if generation and part != ledger.block(file, offset, generation, seed)[start:end]:
            return int(ledger.GARBAGE)
        found.append(generation)
    return int(min(found))


def signature(data: bytes, file: int, seed: int) -> str:
    """Return the signature of a block of an ``extents`` worker's file: index and generation, or an error code."""
    found = ledger.identity(data, seed)
    if found == ledger.GARBAGE and (cut := cut_block(data, file, seed)):
        return cut
    if isinstance(found, int):
        return str({ledger.ABSENT: "-", ledger.OLD: "old"}.get(found, ledger.OTHER_CONTENT))
    return str(ledger.signed(found[1] // BLOCK, found[2])) if found[0] == file else "other"


def cut_block(data: bytes, file: int, seed: int) -> str:
    """Return the signature of a block of which shrink has left the first bytes; empty if it is no such block."""
    if len(data) < ledger.CUT or any(data[ledger.CUT :]):
        return ""
    _, _, offset, generation, _ = ledger.HEADER.unpack_from(data)
    whole = ledger.block(file, offset, generation, seed)
    return str(ledger.signed(offset // BLOCK, generation, True)) if data.startswith(whole[: ledger.CUT]) else ""


def read_back(config: dict[str, Any]) -> dict[str, Any]:
    """Return the content of every worker's files, by the worker's key (`history.WorkerSpec.key`)."""
    return LedgerReader(config).read(config["root"])


class LedgerReader:
    """Reads the files of all workers, any number of times; ``config``: as for `read_back`.

    A checker reads the ledger in each crash state, where most files have the data of the state before.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._workers = [(worker, parts_of(worker, config["seed"])) for worker in config["workers"]]
        self._rest = Rest([(part, worker.get("owner", 0)) for worker, parts in self._workers for part in parts])
        self._keys: dict[str, str] = {}
        """The key of the first worker of each file."""
        for worker, parts in self._workers:
            for part in parts:
                self._keys.setdefault(part.path, key_of(worker))

    def read(self, root: str) -> dict[str, Any]:
        """Return the content of every worker's files below the directory ``root``, by the worker's key."""
        found: dict[str, Any] = {}
        seed = self._config["seed"]
        for worker, parts in self._workers:
            path = os.path.join(root, worker["path"])
            if worker["kind"] in ledger.TREES:
                owner = worker.get("owner", 0)
                found[worker["path"]] = names(path, worker["file"], seed, worker.get("rounds", ()), owner)
            elif worker["kind"] == ledger.APPLICATION:
                found[worker["path"]] = application.check(self._config, worker, path)
            elif worker["kind"] == "o_append":
                found[worker["path"] + "@%d" % worker["number"]] = {
                    "records": records(path, worker["file"], seed),
                    "names": [worker["path"]] if os.path.exists(path) else None,
                }
            elif worker["kind"] in ledger.HOLDERS:
                found[key_of(worker)] = {"names": [worker["path"]] if os.path.exists(path) else None}
            else:
                blocks = [block for part in parts for block in part.read(root)]
                alone = [worker["path"]] if os.path.exists(path) else None
                found[key_of(worker)] = {"blocks": blocks, "names": listed(path) if in_files(worker) else alone}
        self._add_rest(root, found)
        return found

    def _add_rest(self, root: str, found: dict[str, Any]) -> None:
        """Add what is beside the blocks of a file to the entry of a worker of this file, or else of the first one."""
        for path, (strange, old) in self._rest.read(root).items():
            entry = found[self._keys[path]]
            for word, what in (("strange", strange), ("old", old)):
                entry.setdefault(word, []).extend("%s: %s" % (path, one) for one in what)
        known = {worker["path"].split("/")[0] for worker, _ in self._workers}
        # A client keeps a removed file that is open under a name that begins with .nfs.
        names = [one for one in listed(root) or () if one not in known and not one.startswith(".nfs")]
        if names and self._keys:
            entry = found[next(iter(self._keys.values()))]
            entry.setdefault("strange", []).extend("%s: a name that no client created" % one for one in names)


def key_of(worker: dict[str, Any]) -> str:
    """Return the key of a worker with numbered blocks in a scan."""
    return str(worker["path"]) if in_files(worker) else "%s@%d" % (worker["path"], worker.get("first", 0))


class Rest:
    """What the files of the ledger have beside the blocks of all workers: no client has written it."""

    def __init__(self, parts: "list[tuple[Any, int]]") -> None:
        """``parts``: each part of a file, with the owner of the file."""
        covered: dict[str, list[tuple[int, int]]] = {}
        for part, _ in parts:
            covered.setdefault(part.path, []).extend(part.ranges)
        self._owners = {part.path: owner for part, owner in parts}
        self._files = {path: sorted(ranges) for path, ranges in covered.items()}

    def read(self, root: str) -> dict[str, tuple[list[str], list[str]]]:
        """Return for each file with other content what is strange, and where it has old data of the disk."""
        found = {}
        for path, ranges in self._files.items():
            try:
                fd = os.open("%s/%s" % (root, path), os.O_RDONLY)
            except OSError:
                continue  # the entry of its blocks says so
            try:
                rest = rest_of(fd, ranges, self._owners[path])
            finally:
                os.close(fd)
            if any(rest):
                found[path] = rest
        return found


def rest_of(fd: int, ranges: list[tuple[int, int]], owner: int) -> tuple[list[str], list[str]]:
    """Return what is strange in a file of ``owner``, and where it has old data.

    ``ranges``: what workers write, ascending.
    """
    status, end = os.fstat(fd), ranges[-1][1]
    strange, old = attributes_of(fd, status, owner), []
    if status.st_size > end:
        strange.append("%d bytes behind its end" % (status.st_size - end))
    begins = [0, *(one[1] for one in ranges)]
    for begin, limit in zip(begins, [*(one[0] for one in ranges), status.st_size]):  # noqa: B905  not in Python 3.9
        try:
            at, content = first_data(fd, begin, min(limit, status.st_size))
        except OSError as error:
            strange.append("unreadable behind byte %d: %s" % (begin, error.strerror))
            continue
        if ledger.OLD_MAGIC in content:
            old.append("old data of the disk behind byte %d" % at)
        elif content:
            strange.append("content behind byte %d that no client wrote" % at)
    return strange, old


def attributes_of(fd: int, status: os.stat_result, owner: int) -> list[str]:
    """Return the attributes of a file that its worker cannot have given it."""
    strange = []
    if stat.S_IMODE(status.st_mode) & ~0o644:
        strange.append("mode %o" % stat.S_IMODE(status.st_mode))
    if other := other_owner(status, owner):
        strange.append("owner %s" % other)
    if status.st_nlink != 1:
        strange.append("%d names" % status.st_nlink)
    if status.st_mtime < FIRST_WRITE_S:
        strange.append("modification time %d" % status.st_mtime)
    if xattrs := xattrs_of(fd):
        strange.append("attributes %s" % ", ".join(xattrs))
    return strange


def xattrs_of(fd: int) -> list[str]:
    """Return the names of a file's extended attributes and ACLs that not every file has."""
    try:
        return sorted({*os.listxattr(fd)} - USUAL_XATTRS)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        return ["that cannot be read: %s" % error.strerror]


def first_data(fd: int, begin: int, end: int) -> tuple[int, bytes]:
    """Return the first part of a file's range with a byte that is not zero, and its position; no bytes without one."""
    while begin < end:
        try:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # only a hole follows
                raise
            break
        data = ledger.read_whole(fd, min(end - begin, LONGEST), begin) if begin < end else b""
        if any(data):
            return begin, data
        begin += len(data) or LONGEST
        if end - begin > FAR:
            # Where the mount does not know the holes (NFSv3), the whole hole cannot be read.
            begin = end - LONGEST
    return begin, b""


def in_files(worker: dict[str, Any]) -> bool:
    """Return whether a worker that writes blocks has a directory with a file for each operation of a round."""
    # In recordings of older versions, each `close` worker also has its own files, but no field ``files``.
    return bool(worker.get("files")) or worker["kind"] == "close"


def parts_of(worker: dict[str, Any], seed: int) -> "list[Any]":
    """Return a reader of each part of a file that a worker writes: `Part`, or `ledger_pieces.PieceReader`.

    The list is empty for a worker without numbered blocks.
    """
    if worker["kind"] in (*ledger.TREES, *ledger.HOLDERS, ledger.APPLICATION, "o_append"):
        return []
    if worker.get("pieces"):
        return [pieces.PieceReader(worker, place, seed) for place in range(len(worker["pieces"]))]
    count, span, path = worker["blocks"], worker.get("span", 1), worker["path"]
    if in_files(worker):
        worker = {**worker, "files": True}
        return [Part(worker, os.path.join(path, "f%d" % place), place * span, span, seed) for place in range(count)]
    return [Part(worker, path, worker.get("first", 0) * span, count * span, seed)]


class Part:
    """A part of one file: ``count`` blocks of a worker, from block ``index`` on.

    ``path``: path of the file below the root of the ledger.
    """

    def __init__(self, worker: dict[str, Any], path: str, index: int, count: int, seed: int) -> None:
        self._file, self.path, self._seed = worker["file"], path, seed
        self.places = [(one, ledger.position_of(worker, one)) for one in range(index, index + count)]
        self._last: tuple[bytes, list[int]] | None = None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Begin and end of each block in the file, in bytes."""
        return [(position, position + BLOCK) for _, position in self.places]

    def read(self, root: str) -> list[int]:
        """Return the generations or error codes of the blocks."""
        if not self.places:
            return []
        try:
            fd = os.open("%s/%s" % (root, self.path), os.O_RDONLY)
        except FileNotFoundError:
            return [ledger.ABSENT] * len(self.places)
        except OSError:
            return [ledger.UNREADABLE] * len(self.places)
        try:
            return self._blocks(fd)
        finally:
            os.close(fd)

    def _blocks(self, fd: int) -> list[int]:
        start, end = self.places[0][1], self.places[-1][1] + BLOCK
        try:
            data = ledger.read_whole(fd, end - start, start)
        except OSError:
            return [self._block(fd, *place) for place in self.places]
        if self._last is None or self._last[0] != data:
            self._last = data, [self._read(data[at - start : at - start + BLOCK], one, at) for one, at in self.places]
        return self._last[1]

    def _block(self, fd: int, index: int, position: int) -> int:
        try:
            data = ledger.read_whole(fd, BLOCK, position)
        except OSError:
            return int(ledger.UNREADABLE)
        return self._read(data, index, position)

    def _read(self, data: bytes, index: int, position: int) -> int:
        return read_block(data, self._file, index * BLOCK, self._seed, position % BLOCK)


def records(path: str, file: int, seed: int) -> list[int]:
    """Return a number per record of an append file, in order: for this worker's records, the sequence number (from 1).

    `ledger_format.MISPLACED` stands for a valid record of another worker; other codes stand for damaged records.
    """
    found: list[Any] = []
    try:
        with ledger.opened(path, os.O_RDONLY) as fd:
            end = LARGEST  # A damaged file can have any size: after so long a part without a record, no more is read.
            while len(found) * BLOCK < end and (data := ledger.read_whole(fd, LONGEST, len(found) * BLOCK)):
                found += [ledger.identity(data[at : at + BLOCK], seed) for at in range(0, len(data), BLOCK)]
                if any(not isinstance(one, int) for one in found[-LONGEST // BLOCK :]):
                    end = len(found) * BLOCK + LARGEST
    except FileNotFoundError:
        return []
    except OSError:
        return [ledger.UNREADABLE]
    mine = [one if isinstance(one, int) or one[0] == file else ledger.MISPLACED for one in found]
    return [one if isinstance(one, int) else one[1] // BLOCK + 1 for one in mine]


def listed(path: str) -> list[str] | None:
    """Return the names in a directory, or None if the directory does not exist or cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return None


def regular_of(owner: int, path: str, file: int, seed: int, attributes: bool, owners: bool) -> list[Any]:
    """Return what `regular` returns; read as ``owner``, the owner of new files, if root may not read the file.

    By NFS root may not read the files of ordinary users, if the server maps root (root_squash). Without NFS root may
    read all: also a file without a mode, which an NFSv3 client creates, and gives its mode afterwards.
    """
    try:
        return regular(path, file, seed, attributes, owners, owner)
    except PermissionError:
        if not owner:
            raise
    with ledger.acting_as(owner):
        return regular(path, file, seed, attributes, owners, owner)


def regular(path: str, file: int, seed: int, attributes: bool, owners: bool, owner: int = 0) -> list[Any]:
    """Return mode, size, link count and `content` of a file of a worker that changes directories.

    ``attributes``: also the extended attribute; ``owners``: and the owner and the modification time, see `changed`;
    ``owner``: the owner of new files.

    The content is None if the file is not a regular one: then its directory is damaged.
    """
    with ledger.opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
        status = os.fstat(fd)
        found = content(fd, status.st_size, file, seed) if stat.S_ISREG(status.st_mode) else None
    entry = [status.st_mode, status.st_size, status.st_nlink, found]
    owners = owners or other_owner(status, owner) is not None
    entry += [attribute(path) if attributes else None] if attributes or owners else []
    return entry + (changed(status, owner) if owners else [])


def changed(status: os.stat_result, owner: int = 0) -> list[str | int | None]:
    """Return owner and modification time of a file, each None if no operation has set it.

    ``owner``: the owner of a new file. Its group is that of the worker's RPCs (`ledger_format.GROUPS`), or another one
    if the server maps users.
    """
    seconds = int(status.st_mtime)
    return [other_owner(status, owner), seconds if seconds < FIRST_WRITE_S else None]


def other_owner(status: os.stat_result, owner: int) -> str | None:
    """Return owner and group of a file if it does not belong to ``owner``, else None.

    Only root can make files of other users: if another user reads, no file has a wrong owner.
    """
    return None if status.st_uid == owner or os.geteuid() else "%d:%d" % (status.st_uid, status.st_gid)


def content(fd: int, size: int, file: int, seed: int) -> str | list[str]:
    """Return the content of an open regular file of a worker that changes directories.

    For a file of at least one block: the signature of each block, in the first `LARGEST` bytes (a damaged file can
    have any size, which the size beside the content shows). For a shorter file: ``+`` for the data of append or
    its beginning, `ledger_format.UNCUT` for this data with zeroes instead of the part that truncate cuts, and
    `ledger_writer.OTHER_CONTENT` for other data.
    """
    if size >= BLOCK:
        size = min(size, LARGEST)
        data = ledger.read_whole(fd, size, 0)
        return [signature(data[at : at + BLOCK], file, seed) for at in range(0, size, BLOCK)]
    # One byte more than append writes: the size in the result shows how long the file is.
    data = os.read(fd, ledger.APPENDED + 1)
    if not data.strip(b"+"):
        return "+"
    uncut = b"+" * ledger.TRUNCATED + bytes(ledger.APPENDED - ledger.TRUNCATED)
    return str(ledger.UNCUT if data == uncut else ledger.OTHER_CONTENT)


def attribute(path: str) -> str | None:
    """Return the value of the extended attribute that setxattr sets, or None if the file lacks the attribute."""
    try:
        return os.getxattr(path, ledger.XATTR).decode(errors="replace")
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def names(path: str, file: int = 0, seed: int = 0, rounds: Any = (), owner: int = 0) -> dict[str, list[Any]]:
    """Return mode, size, link count, content and extended attribute of every name below a directory.

    The content is the target of a symbolic link, or the result of `content` for a regular file. The attribute is
    included only if a round sets attributes, owner and modification time only if a round changes owners or times, or
    if the owner is another one than ``owner``, the owner of new names.
    """
    found: dict[str, list[Any]] = {}
    start = len(os.path.join(path, ""))
    attributes = any("setxattr" in steps for steps in rounds)
    owners = any(kind in steps for steps in rounds for kind in ("chown", "utimes"))

    def unreadable(error: OSError) -> None:
        if error.errno == errno.ENOENT:
            return
        found[os.path.relpath(error.filename, path)] = [0, 0, 0, errno.errorcode.get(error.errno or 0, "?")]

    directories = [path]
    while directories:
        directory = directories.pop()
        try:
            with os.scandir(directory) as entries:
                listing = list(entries)
        except OSError as error:
            # The error of readdir lacks the name of the directory.
            error.filename = directory
            unreadable(error)
            continue
        for one in listing:
            full = one.path
            try:
                # The directory has the types of its files: a file is opened without a look at its name before.
                if one.is_file(follow_symlinks=False):
                    entry = regular_of(owner, full, file, seed, attributes, owners)
                else:
                    status = os.lstat(full)
                    entry = [status.st_mode, status.st_size, status.st_nlink, None]
                    entry += [None, other] if (other := other_owner(status, owner)) else []
                if stat.S_ISDIR(entry[0]):
                    directories.append(full)
                elif stat.S_ISLNK(entry[0]):
                    entry[3] = os.readlink(full)
                found[full[start:]] = entry
            except OSError as error:
                # The error of os.read lacks the name of the file.
                error.filename = full
                unreadable(error)
    return found


def main() -> None:
    """Print the content of the ledger of the configuration that the command line names."""
    with open(sys.argv[1]) as config_file:
        found = read_back(json.load(config_file))
    # json.dump would write each element by itself, which takes a quarter of the time of the whole program.
    sys.stdout.write(json.dumps(found, separators=(",", ":")))
