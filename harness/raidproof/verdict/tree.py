"""Model of a ledger directory after each of its changes, and the comparison of the model with a scan.

`ledger_writer.Directory` changes a directory on a client, one change at a time. After a crash the directory must have
the state after the last acknowledged change, or after the change that was in progress.
"""

import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from raidproof.core.errors import RigError
from raidproof.guest.ledger_format import (
    ALLOCATED,
    APPENDED,
    BLOCK,
    COPIED,
    CREATED,
    CUT,
    FRAGMENTS,
    GROUP,
    LONG_NAME,
    MODE,
    MTIME_S,
    OTHER_CONTENT,
    OWNER,
    PUNCHED,
    TRUNCATED,
    UNCUT,
    WRITTEN,
    XATTR_VALUE,
    ZEROED,
    signed,
)
from raidproof.workload.history import Operation

Value = str | int | bool | None | tuple[str, ...]
"""The value of a field; for the content of a file: a text, or the signature of each block."""
Fields = dict[tuple[str, str], Value]
"""The state of a directory: values by (name or file number, field). The name of the directory itself is empty.

A missing file, symlink or directory has no fields.
"""
Entries = Mapping[str, Sequence[Any]]
"""The scan's entry for each name in a directory; see `raidproof.guest.ledger_reader.names`."""

THERE = "there"
"""Field of the directory, a symlink or a file: its kind, or whether it exists."""
BLOCK_FIELD, IN_BLOCKS = "block ", "blocks"
"""Prefix of the field of one block; value of the field ``held`` of a file that has such fields."""
USUAL_MODE = 0o755
"""The permissions that a directory has at most: clients create it with the usual umask."""
DIRECTORY, PIPE = "a directory", "a pipe"
"""Values of the field ``there`` of a subdirectory and of a pipe (fifo(7))."""
CREATIONS = frozenset({"create", "recreate", "long_name"})
"""Kinds of operation that create a file, in two steps.

A server may keep the verifier of an exclusive create in the file's times, until the client sends a SETATTR (RFC 1813,
3.3.8; RFC 8881, 18.16.3). While the operation is in progress, mode and modification time of the new file may have any
value.
"""
UNREADABLE = "EACCES"
"""What a scan by NFS has instead of the kind of a file that its owner may not read.

The mode of a file whose creation is in progress may forbid it. A lost SETATTR of NFSv3 leaves such a file.
"""
LOOSE = CREATIONS | {
    "append", "pages", "fragments", "allocate", "punch", "zero_range", "copy", "clone", "shrink", "grow",
}  # fmt: skip
"""Kinds of operation with several steps. While the operation is in progress, its fields may have any value, except
those of `CREATIONS`. All other kinds are atomic."""


class File(NamedTuple):
    """A regular file in the model of a directory, without its names."""

    mode: int = CREATED
    size: int = 0
    """Size in bytes."""
    held: Value = ""
    """Content: a code of the scan, such as ``+`` for what `append` writes, or the signature of each block."""
    attribute: str | None = None
    """Value of the extended attribute."""
    owner: str | None = None
    """Owner and group as ``UID:GID``; None: not changed since the creation."""
    mtime: int | None = None
    """Modification time in seconds since 1970; None: that of the last write."""


class Content(NamedTuple):
    """One state of a directory in the model."""

    there: bool = False
    """Whether the directory exists."""
    names: Mapping[str, int] = {}
    """The number of the file that each name refers to."""
    symlinks: Mapping[str, str] = {}
    """The target of each symlink, by name."""
    others: Mapping[str, str] = {}
    """The kind of each subdirectory and pipe, by name."""
    files: tuple[File, ...] = ()
    """All files ever created, in the order of creation, which is their number from 0."""

    def by_name(self) -> Fields:
        """Return the fields of the directory, with the fields of each file under each of its names, as in a scan."""
        found: Fields = {("", THERE): self.there}
        for name, target in self.symlinks.items():
            found |= {(name, THERE): "symlink", (name, "held"): target}
        found |= {(name, THERE): kind for name, kind in self.others.items()}
        for name, number in self.names.items():
            found |= file_by_name(name, self.files[number], self.links(number))
        return found

    def by_file(self) -> Fields:
        """Return the fields of the directory, the fields of each file under its number, and the existing names."""
        found: Fields = {("", THERE): self.there}
        found |= {("name", name): "symlink" for name in self.symlinks} | {
            ("name", name): "file" for name in self.names
        }
        found |= {("name", name): kind for name, kind in self.others.items()}
        for number in set(self.names.values()):
            fields = {THERE: True, "links": self.links(number), **apart(self.files[number])}
            found |= {(str(number), field): value for field, value in fields.items()}
        return found

    def links(self, number: int) -> int:
        """Return the link count of the file with this number."""
        return sum(one == number for one in self.names.values())

    def make(self, name: str, file: File | None = None) -> "Content":
        """Return a copy of the directory with one more file, an empty one by default."""
        names = {**self.names, name: len(self.files)}
        return self._replace(names=names, files=(*self.files, file or File()))

    def change(self, name: str, **fields: Any) -> "Content":
        """Return a copy of the directory in which the file of this name has the given fields."""
        number = self.names[name]
        changed = self.files[number]._replace(**fields)
        return self._replace(files=(*self.files[:number], changed, *self.files[number + 1 :]))

    def rename(self, old: str, new: str | None) -> "Content":
        """Return a copy of the directory in which file ``old`` has the name ``new``; None: ``old`` is removed."""
        names = {name: number for name, number in self.names.items() if name != old}
        return self._replace(names=names if new is None else {**names, new: self.names[old]})

    def add(self, name: str, kind: str) -> "Content":
        """Return a copy of the directory with a subdirectory or a pipe."""
        return self._replace(others={**self.others, name: kind})

    def rename_directory(self, old: str, new: str) -> "Content":
        """Return a copy of the directory in which a subdirectory and all names in it are renamed."""
        renamed = {re.sub(f"^{old}(?=/|$)", new, name): name for name in (*self.names, *self.others)}
        return self._replace(
            names={name: self.names[before] for name, before in renamed.items() if before in self.names},
            others={name: self.others[before] for name, before in renamed.items() if before in self.others},
        )

    def after(self, kind: str, number: int) -> "Content":
        """Return the state of the directory after a change of this kind; ``number``: the number of the directory.

        Raises:
            RigError: the model has no rule for this kind.
        """
        if kind not in CHANGES:
            raise RigError(f"the model of the ledger's directories has no rule for the kind of operation {kind!r}")
        return CHANGES[kind](self, number)

    def held(self, name: str) -> tuple[str, ...]:
        """Return the signatures of the blocks of the file of this name; empty if its content is a code of the scan."""
        held = self.files[self.names[name]].held
        return held if isinstance(held, tuple) else ()

    def blocks(self, name: str, held: Iterable[str], size: int | None = None) -> "Content":
        """Return a copy of the directory in which the file of this name consists of blocks with these signatures.

        ``size``: size of the file in bytes; None: that of all blocks.
        """
        blocks = tuple(held)
        return self.change(name, size=len(blocks) * BLOCK if size is None else size, held=blocks)


def apart(file: File) -> dict[str, Value]:
    """Return the fields of a file, with one field for each block: different operations may write the blocks."""
    fields: dict[str, Value] = file._asdict()
    if isinstance(file.held, tuple):
        fields |= {"held": IN_BLOCKS} | {f"{BLOCK_FIELD}{place}": held for place, held in enumerate(file.held)}
    return fields


CHANGES: Mapping[str, Callable[[Content, int], Content]] = {
    "mkdir": lambda old, _: old._replace(there=True),
    "rmdir": lambda old, _: old._replace(there=False),
    "create": lambda old, _: old.make("t" if "a" in old.names else "a"),
    "append": lambda old, _: old.change("a", size=APPENDED, held="+"),
    "setattr": lambda old, _: old.change("a", mode=MODE),
    "setxattr": lambda old, _: old.change("a", attribute=XATTR_VALUE),
    "link": lambda old, _: old._replace(names={**old.names, "b": old.names["a"]}),
    "symlink": lambda old, _: old._replace(symlinks={"s": "a"}),
    "rename": lambda old, _: old.rename("a", "c"),
    "replace": lambda old, _: old.rename("a", "t"),
    "truncate": lambda old, _: old.change("c", size=TRUNCATED),
    "remove": lambda old, _: old.rename("b", None),
    "unlink": lambda old, _: old.rename("t" if "t" in old.names else "a", None),
    "pages": lambda old, number: old.blocks("a", [signed(place, number + 1) for place in range(WRITTEN)]),
    "fragments": lambda old, number: old.blocks(
        "a",
        [signed(place, number + 1) if place in FRAGMENTS else "-" for place in range(FRAGMENTS[-1] + 1)],
    ),
    "allocate": lambda old, _: old.blocks("a", [*old.held("a"), *["-"] * ALLOCATED]),
    "punch": lambda old, _: old.blocks("a", [*old.held("a")[:PUNCHED], "-", *old.held("a")[PUNCHED + 1 :]]),
    "zero_range": lambda old, _: old.blocks("a", [*old.held("a")[:ZEROED], "-", *old.held("a")[ZEROED + 1 :]]),
    "copy": lambda old, _: old.make("b").blocks("b", old.held("a")[:COPIED]),
    "clone": lambda old, _: old.make("c").blocks("c", old.held("a")),
    "shrink": lambda old, number: old.blocks(
        "a", [*old.held("a")[:PUNCHED], signed(PUNCHED, number + 1, cut=True)], PUNCHED * BLOCK + CUT
    ),
    "grow": lambda old, _: old.blocks("a", [*old.held("a"), *["-"] * (WRITTEN - len(old.held("a")))]),
    "subdirectory": lambda old, _: old.add("x", DIRECTORY),
    "rename_into": lambda old, _: old.rename("a", "x/a"),
    "rename_directory": lambda old, _: old.rename_directory("x", "y"),
    "link_into": lambda old, _: old._replace(names={**old.names, "x/b": old.names["a"]}),
    "rename_symlink": lambda old, _: old._replace(symlinks={"r": old.symlinks["s"]}),
    "mknod": lambda old, _: old.add("p", PIPE),
    "recreate": lambda old, _: old.make("a"),
    "long_name": lambda old, _: old.make(LONG_NAME),
    "chown": lambda old, _: old.change("a", owner=f"{OWNER}:{GROUP}"),
    "utimes": lambda old, _: old.change("a", mtime=MTIME_S),
}
"""For each kind of operation, a function from a directory's state and number to the directory's next state."""


def file_by_name(name: str, file: File, links: int) -> Fields:
    """Return the fields of a file with ``links`` names, under the given name."""
    fields = {THERE: "file", "links": links, **file._asdict()}
    return {(name, field): value for field, value in fields.items()}


class Course(NamedTuple):
    """The states of a directory before its first change and after each change, in three forms."""

    contents: tuple[Content, ...]
    by_name: tuple[Fields, ...]
    """The fields of each state, as `Content.by_name` returns them."""
    by_file: tuple[Fields, ...]
    """The fields of each state, as `Content.by_file` returns them."""

    def names_of(self, file: str, least: int) -> set[str]:
        """Return all names that the file of this number had, except names of other files after change ``least``.

        A name that did not exist after this change is that of another file if a later change creates the other file.
        """
        number = int(file)
        mine = {name for content in self.contents for name, one in content.names.items() if one == number}
        users = [content.names for content in self.contents[least:]]
        return {name for name in mine if next((one[name] for one in users if name in one), number) == number}


@lru_cache(maxsize=1 << 14)
def course(kinds: tuple[str, ...], number: int) -> Course:
    """Return the states that a sequence of changes produces; ``number``: the number of the directory."""
    contents = [Content()]
    for kind in kinds:
        contents.append(contents[-1].after(kind, number))
    return Course(tuple(contents), tuple(one.by_name() for one in contents), tuple(one.by_file() for one in contents))


@lru_cache(maxsize=1 << 14)
def shown(kinds: tuple[str, ...], number: int, least: int) -> tuple[bool, ...]:
    """Return for each of the first ``least`` changes whether the state after all of them still shows its effect."""
    ran = course(kinds, number)
    return tuple(
        any(
            all(state.get(key) == ran.by_file[place + 1].get(key) for state in ran.by_file[place + 1 : least + 1])
            for key in different(ran.by_file[place], ran.by_file[place + 1])
        )
        for place in range(least)
    )


def directories(found: Entries) -> dict[str, dict[str, Sequence[Any]]]:
    """Return the scan's entries by directory and by name in the directory; the directory's own name is empty."""
    apart: dict[str, dict[str, Sequence[Any]]] = {}
    for path, entry in found.items():
        directory, _, name = path.partition("/")
        apart.setdefault(directory, {})[name] = entry
    return apart


def scanned(entries: Entries) -> Fields:
    """Return the fields of a scanned directory; the field `THERE` of an unreadable entry is the error."""
    state: Fields = {("", THERE): False}
    for name, entry in entries.items():
        mode, size, links, held = entry[:4]
        if not name:
            state["", THERE] = stat.S_ISDIR(mode) or str(held)
        elif stat.S_ISREG(mode):
            # The scan of an older record lacks the content: its size shows whether the file is empty.
            known = "+" if held is None else held
            value = tuple(known) if isinstance(known, list) else known if size else ""
            file = File(stat.S_IMODE(mode), size, value, *entry[4:7])
            state |= file_by_name(name, file, links)
        elif stat.S_ISLNK(mode):
            state |= {(name, THERE): "symlink", (name, "held"): held}
        else:
            state[name, THERE] = DIRECTORY if stat.S_ISDIR(mode) else PIPE if stat.S_ISFIFO(mode) else str(held)
        if not stat.S_ISREG(mode):
            state |= unexpected(name, entry)
    return state


def unexpected(name: str, entry: Sequence[Any]) -> Fields:
    """Return the owner and the mode of a scanned name that is no regular file, if no client can have given them."""
    mode, owner = entry[0], next(iter(entry[5:]), None)
    fields: Fields = {(name, "owner"): owner} if owner is not None else {}
    if stat.S_ISDIR(mode) and (permissions := stat.S_IMODE(mode)) & ~USUAL_MODE:
        fields[name, "mode"] = f"{permissions:04o}"
    return fields


class Seen(NamedTuple):
    """The result of the comparison of one directory's history with its scan."""

    lost: Sequence[tuple[Operation, str]] = ()
    """Acknowledged changes that are missing, and a description of what was found instead."""
    odd: Sequence[str] = ()
    """Descriptions of names and fields that no change of the directory explains."""


def hold(bound: Sequence[Operation], begun: Sequence[Operation], entries: Entries) -> Seen:
    """Compare a directory's changes with a scan of the directory.

    ``bound``: the acknowledged changes. ``begun``: the acknowledged changes, followed by those whose execution is not
    known.
    """
    found, least = scanned(entries), len(bound)
    kinds, number = tuple(one.kind for one in begun), begun[0].place if begun else 0
    ran = course(kinds, number)
    if "truncate" in kinds:
        # ext4 zeroes the end of a file before it truncates the file: the file counts as not yet truncated
        # (docs/findings.md).
        found = {key: "+" if value == UNCUT else value for key, value in found.items()}
    if found in ran.by_name[least:]:
        return Seen()
    known = {name for state in ran.by_name for name, field in state if field == THERE}
    odd = sorted(
        f"{name}: a name that no client created" for name, field in found if field == THERE and name not in known
    )
    if found["", THERE] is not True and all(content.there for content in ran.contents[least:]):
        what = "the directory is missing" if not found["", THERE] else f"cannot read the directory: {found['', THERE]}"
        return Seen([(one, what) for one in bound], odd)
    loose_files = under_way(ran.by_file, begun, least)
    lost = [
        (operation, instead)
        for place, operation in enumerate(bound)
        if (instead := undone(ran, operation.kind, place, least, found, loose_files)) is not None
    ]
    if lost or odd:
        return Seen(lost, odd)
    loose = under_way(ran.by_name, begun, least)
    hidden = {name for name, field in loose if field == "mode" and found.get((name, THERE)) == UNREADABLE}
    left = min(
        (sorted(key for key in different(found, one) - loose if key[0] not in hidden) for one in ran.by_name[least:]),
        key=len,
    )
    odd = [
        f"{name or 'directory'}: {_TITLES.get(field, field)} is {short(found.get((name, field)))}"
        for name, field in left
    ]
    return Seen([], odd)


def different(one: Fields, other: Fields) -> set[tuple[str, str]]:
    """Return the keys whose values differ between two states; a missing key differs from any value but None."""
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def under_way(states: Sequence[Fields], begun: Sequence[Operation], least: int) -> set[tuple[str, str]]:
    """Return the keys of the fields that may have any value, because a change of several steps was in progress."""
    loose: set[tuple[str, str]] = set()
    for place, operation in enumerate(begun[least:], start=least):
        if operation.kind in LOOSE:
            changed = different(states[place], states[place + 1])
            if operation.kind in CREATIONS:
                changed = {(of, one) for of, field in changed if field == THERE for one in ("mode", "mtime")}
            # A change of the size in progress leaves the content undefined, too. That is no loss of earlier content.
            loose |= changed | {(of, "held") for of, field in changed if field == "size"}
    return loose


_TITLES = {
    "held": "content",
    THERE: "kind",
    "links": "number of names",
    "attribute": "extended attribute",
    "mtime": "modification time",
}
"""Names of fields in reports; a field that is not listed has the same name in reports."""
WRITTEN_FIELDS = frozenset({"size", "held"})
"""Fields that writes to a file set, and not its creation."""


def undone(
    ran: Course, kind: str, place: int, least: int, found: Fields, loose: Collection[tuple[str, str]]
) -> str | None:
    """Return a description of what contradicts an acknowledged change; None if the scan shows no contradiction.

    ``place``: index of the change; ``least``: number of acknowledged changes; ``loose``: keys of the fields that may
    have any value. A value that a later change has set is no contradiction.
    """
    changed = different(ran.by_file[place], ran.by_file[place + 1])
    for key in sorted(changed, key=lambda one: (one[0] not in {"", "name"}, one[1] != THERE, one)):
        wanted, *later = (state.get(key) for state in ran.by_file[place + 1 :])
        if key in loose or (kind == "create" and key[1] in WRITTEN_FIELDS):
            continue
        values = values_of(ran, key, least, found)
        if values.isdisjoint({wanted, *later}):
            return contradiction(key, values, wanted)
    return None


def values_of(ran: Course, key: tuple[str, str], least: int, found: Fields) -> set[Value]:
    """Return the values that the scan found for a field; a field of a file has a value under each of its names."""
    of, field = key
    if not of:
        return {found["", THERE]}
    if of == "name":
        return {found.get((field, THERE))}
    names = [name for name in ran.names_of(of, least) if found.get((name, THERE)) == "file"]
    if field == THERE:
        return {True if names else None}
    if field.startswith(BLOCK_FIELD):
        place = int(field.removeprefix(BLOCK_FIELD))
        held = [found.get((name, "held")) for name in names]
        return {one[place] if isinstance(one, tuple) and place < len(one) else None for one in held} or {None}
    held = [found.get((name, field)) for name in names]
    return {IN_BLOCKS if field == "held" and isinstance(one, tuple) else one for one in held} or {None}


def contradiction(key: tuple[str, str], values: set[Value], wanted: Value) -> str:
    """Return a description of what was found instead of the result of a change."""
    of, field = key
    there = " and ".join(sorted(map(short, values)))
    if not of:
        return "the directory still exists"
    if of == "name":
        missing = "is missing" if values == {None} else f"is {there}"
        return f"the name {field} {'still exists' if wanted is None else missing}"
    if field.startswith(BLOCK_FIELD):
        return f"a block of the file is {' and '.join(sorted(map(short, map(one_block, values))))}"
    if field == THERE or values == {None}:
        return "the file still exists" if wanted is None else "the file is missing under all of its names"
    if field == "mode":
        return f"mode is {' and '.join(f'{one:04o}' for one in values if isinstance(one, int))}, not {wanted:04o}"
    title = _TITLES.get(field, field)
    return f"{title} is {there}" if field == "held" else f"{title} is {there}, not {short(wanted)}"


def one_block(value: Value) -> Value:
    """Return ``missing`` or ``zero`` for a block that has no content, else the block's signature in a tuple."""
    return "missing" if value is None else "zero" if value == "-" else (str(value),)


def short(value: Value) -> str:
    """Return a value as text for a report. Blocks appear by their kind of damage: equal failures have equal texts."""
    if isinstance(value, tuple):
        strange = {"old": "old data of the disk", "other": "blocks of another file", OTHER_CONTENT: "garbage"}
        return " and ".join(strange[one] for one in strange if one in value) or "other blocks"
    words = {
        "": "empty",
        "+": "complete",
        OTHER_CONTENT: "garbage",
        UNCUT: "zeroed at its end",
        None: "missing",
        True: "a directory",
        False: "missing",
    }
    return words.get(value, str(value)) if isinstance(value, str | bool | None) else str(value)
