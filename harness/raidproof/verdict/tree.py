"""Model of a ledger directory after each of its changes, and the comparison of the model with a scan.

The changes of a directory are made one at a time. A crash must leave the state after the last acknowledged change, or
after the change that was in progress. `ledger_writer.Directory` makes the changes.
"""

import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from raidproof.core.errors import RigError
from raidproof.guest.ledger_writer import (
    ALLOCATED,
    APPENDED,
    BLOCK,
    COPIED,
    CREATED,
    MODE,
    OTHER_CONTENT,
    PUNCHED,
    TRUNCATED,
    UNCUT,
    WRITTEN,
    XATTR_VALUE,
    signed,
)
from raidproof.workload.history import Operation

Value = str | int | bool | None | tuple[str, ...]
Fields = dict[tuple[str, str], Value]
"""Values by (name or file number, field); the directory itself has an empty name. Missing objects have none."""
Entries = Mapping[str, Sequence[Any]]
"""The scan's entry for each name in a directory; see `raidproof.guest.ledger_reader.names`."""

THERE = "there"
BLOCK_FIELD, BLOCKS = "block ", "blocks"
LOOSE = frozenset({"create", "append", "pages", "allocate", "punch", "copy", "clone"})
"""Kinds of operation with several steps: while one is in progress, the fields that it changes may have any value.

All other kinds are atomic. `create` is not: after an exclusive create a client may need a SETATTR (RFC 8881, 18.16.3).
"""


class File(NamedTuple):
    """A regular file, whatever its names."""

    mode: int = CREATED
    size: int = 0
    held: Value = ""
    attribute: str | None = None


class Content(NamedTuple):
    """A directory: its names, its symlinks, and its files in the order of creation; names refer to files by number."""

    there: bool = False
    names: Mapping[str, int] = {}
    symlinks: Mapping[str, str] = {}
    files: tuple[File, ...] = ()

    def by_name(self) -> Fields:
        """Return the fields of each name, as in a scan."""
        found: Fields = {("", THERE): self.there}
        for name, target in self.symlinks.items():
            found |= {(name, THERE): "symlink", (name, "held"): target}
        for name, number in self.names.items():
            found |= file_by_name(name, self.files[number], self.links(number))
        return found

    def by_file(self) -> Fields:
        """Return the existing names, and the fields of each file that has a name."""
        found: Fields = {("", THERE): self.there}
        found |= {("name", name): "symlink" for name in self.symlinks} | {
            ("name", name): "file" for name in self.names
        }
        for number in set(self.names.values()):
            fields = {THERE: True, "links": self.links(number), **apart(self.files[number])}
            found |= {(str(number), field): value for field, value in fields.items()}
        return found

    def links(self, number: int) -> int:
        """Return the number of names of a file (its link count)."""
        return sum(one == number for one in self.names.values())

    def make(self, name: str, file: File | None = None) -> "Content":
        """Return a copy with one more file."""
        names = {**self.names, name: len(self.files)}
        return self._replace(names=names, files=(*self.files, file or File()))

    def change(self, name: str, **fields: Any) -> "Content":
        """Return a copy with changed fields of a file."""
        number = self.names[name]
        changed = self.files[number]._replace(**fields)
        return self._replace(files=(*self.files[:number], changed, *self.files[number + 1 :]))

    def rename(self, old: str, new: str | None) -> "Content":
        """Return a copy in which a file is renamed, or loses the name if ``new`` is None."""
        names = {name: number for name, number in self.names.items() if name != old}
        return self._replace(names=names if new is None else {**names, new: self.names[old]})

    def after(self, kind: str, number: int) -> "Content":
        """Return the state after one change of the directory with this number.

        Raises:
            RigError: the kind of change is unknown.
        """
        if kind not in CHANGES:
            raise RigError(f"no rule for an operation of kind {kind!r}")
        return CHANGES[kind](self, number)

    def held(self, name: str) -> tuple[str, ...]:
        """Return the signatures of a file's blocks."""
        held = self.files[self.names[name]].held
        return held if isinstance(held, tuple) else ()

    def blocks(self, name: str, held: Iterable[str]) -> "Content":
        """Return a copy with other blocks in a file."""
        blocks = tuple(held)
        return self.change(name, size=len(blocks) * BLOCK, held=blocks)


def apart(file: File) -> dict[str, Value]:
    """Return the fields of a file, with a field for each block, as different operations may write its blocks."""
    fields: dict[str, Value] = file._asdict()
    if isinstance(file.held, tuple):
        fields |= {"held": BLOCKS} | {f"{BLOCK_FIELD}{place}": held for place, held in enumerate(file.held)}
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
    "allocate": lambda old, _: old.blocks("a", [*old.held("a"), *["-"] * ALLOCATED]),
    "punch": lambda old, _: old.blocks("a", [*old.held("a")[:PUNCHED], "-", *old.held("a")[PUNCHED + 1 :]]),
    "copy": lambda old, _: old.make("b").blocks("b", old.held("a")[:COPIED]),
    "clone": lambda old, _: old.make("c").blocks("c", old.held("a")),
}
"""For each kind of operation a function from the state of a directory and its number to the next state."""


def file_by_name(name: str, file: File, links: int) -> Fields:
    """Return the fields of a file under one of its names."""
    fields = {THERE: "file", "links": links, **file._asdict()}
    return {(name, field): value for field, value in fields.items()}


class Course(NamedTuple):
    """The states of a directory before its first change and after each change."""

    contents: tuple[Content, ...]
    by_name: tuple[Fields, ...]
    by_file: tuple[Fields, ...]

    def names_of(self, file: str, least: int) -> set[str]:
        """Return the names that a file ever had, except those that another file has after ``least`` changes."""
        number = int(file)
        mine = {name for content in self.contents for name, one in content.names.items() if one == number}
        return {name for name in mine if self.contents[least].names.get(name, number) == number}


@lru_cache(maxsize=1 << 14)
def course(kinds: tuple[str, ...], number: int) -> Course:
    """Return the states that a sequence of changes produces."""
    contents = [Content()]
    for kind in kinds:
        contents.append(contents[-1].after(kind, number))
    return Course(tuple(contents), tuple(one.by_name() for one in contents), tuple(one.by_file() for one in contents))


@lru_cache(maxsize=1 << 14)
def shown(kinds: tuple[str, ...], number: int, least: int) -> tuple[bool, ...]:
    """Return, for each of the first ``least`` changes, whether the final state shows that the change was made."""
    ran = course(kinds, number)
    return tuple(
        any(
            all(state.get(key) == ran.by_file[place + 1].get(key) for state in ran.by_file[place + 1 : least + 1])
            for key in different(ran.by_file[place], ran.by_file[place + 1])
        )
        for place in range(least)
    )


def directories(found: Entries) -> dict[str, dict[str, Sequence[Any]]]:
    """Return the scan's entries by directory and name; the entry of the directory itself has an empty name."""
    apart: dict[str, dict[str, Sequence[Any]]] = {}
    for path, entry in found.items():
        directory, _, name = path.partition("/")
        apart.setdefault(directory, {})[name] = entry
    return apart


def scanned(entries: Entries) -> Fields:
    """Return the fields of a scanned directory; the value of an unreadable entry is the error."""
    state: Fields = {("", THERE): False}
    for name, entry in entries.items():
        mode, size, links, held = entry[:4]
        if not name:
            state["", THERE] = stat.S_ISDIR(mode) or str(held)
        elif stat.S_ISREG(mode):
            # Scans of older records lack the content: then only the size shows whether the file is empty.
            known = "+" if held is None else held
            value = tuple(known) if isinstance(known, list) else known if size else ""
            file = File(stat.S_IMODE(mode), size, value, *entry[4:5])
            state |= file_by_name(name, file, links)
        elif stat.S_ISLNK(mode):
            state |= {(name, THERE): "symlink", (name, "held"): held}
        else:
            state[name, THERE] = "a directory" if stat.S_ISDIR(mode) else str(held)
    return state


class Seen(NamedTuple):
    """The result of the comparison of one directory's history with its scan."""

    lost: Sequence[tuple[Operation, str]] = ()
    """Acknowledged changes that are missing, and a description of what was found instead."""
    odd: Sequence[str] = ()
    """Descriptions of what no change explains."""


def hold(bound: Sequence[Operation], begun: Sequence[Operation], entries: Entries) -> Seen:
    """Compare a directory's changes with a scan of the directory.

    ``bound``: the acknowledged changes; ``begun``: the same changes, then those that may have been made or not.
    """
    found, least = scanned(entries), len(bound)
    kinds, number = tuple(one.kind for one in begun), begun[0].place if begun else 0
    ran = course(kinds, number)
    if "truncate" in kinds:
        # ext4 zeroes the tail before it truncates: such a file counts as not yet truncated (docs/findings.md).
        found = {key: "+" if value == UNCUT else value for key, value in found.items()}
    if found in ran.by_name[least:]:
        return Seen()
    known = {name for state in ran.by_name for name, field in state if field == THERE}
    odd = sorted(f"{name}, which no client made" for name, field in found if field == THERE and name not in known)
    if found["", THERE] is not True and all(content.there for content in ran.contents[least:]):
        said = "the directory is not there" if not found["", THERE] else f"the directory: {found['', THERE]}"
        return Seen([(one, said) for one in bound], odd)
    loose_files = under_way(ran.by_file, begun, least)
    lost = [
        (operation, instead)
        for place, operation in enumerate(bound)
        if (instead := undone(ran, operation.kind, place, least, found, loose_files)) is not None
    ]
    if lost or odd:
        return Seen(lost, odd)
    loose = under_way(ran.by_name, begun, least)
    left = min((sorted(different(found, one) - loose) for one in ran.by_name[least:]), key=len)
    return Seen([], [f"{name or 'directory'}: {field} is {short(found.get((name, field)))}" for name, field in left])


def different(one: Fields, other: Fields) -> set[tuple[str, str]]:
    """Return the keys whose values differ."""
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def under_way(states: Sequence[Fields], begun: Sequence[Operation], least: int) -> set[tuple[str, str]]:
    """Return the fields that may have any value as a change in progress writes them."""
    loose: set[tuple[str, str]] = set()
    for place, operation in enumerate(begun[least:], start=least):
        if operation.kind in LOOSE:
            changed = different(states[place], states[place + 1])
            # A change of the size also leaves the content undefined; this is no loss of earlier content.
            loose |= changed | {(of, "held") for of, field in changed if field == "size"}
    return loose


WRITTEN_FIELDS = frozenset({"size", "held"})
"""Fields that the creation of a file does not set, only writes to the file."""


def undone(
    ran: Course, kind: str, place: int, least: int, found: Fields, loose: Collection[tuple[str, str]]
) -> str | None:
    """Return what contradicts an acknowledged change; None if the change, or a later one that covers it, is there."""
    changed = different(ran.by_file[place], ran.by_file[place + 1])
    for key in sorted(changed, key=lambda one: (one[0] not in {"", "name"}, one[1] != THERE, one)):
        wanted, *later = (state.get(key) for state in ran.by_file[place + 1 :])
        if key in loose or (kind == "create" and key[1] in WRITTEN_FIELDS):
            continue
        # A value that a later change has set does not contradict this change.
        values = values_of(ran, key, least, found)
        if values.isdisjoint({wanted, *later}):
            return contradiction(key, values, wanted)
    return None


def values_of(ran: Course, key: tuple[str, str], least: int, found: Fields) -> set[Value]:
    """Return the values found for a field, for a file under each of its names."""
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
    return {BLOCKS if field == "held" and isinstance(one, tuple) else one for one in held} or {None}


def contradiction(key: tuple[str, str], values: set[Value], wanted: Value) -> str:
    """Return a description of what was found instead of the result of a change."""
    of, field = key
    there = " and ".join(sorted(map(short, values)))
    if not of:
        return "the directory is still there"
    if of == "name":
        missing = "is not there" if values == {None} else f"is {there}"
        return f"the name {field} {'is still there' if wanted is None else missing}"
    if field.startswith(BLOCK_FIELD):
        return f"a block of it is {' and '.join(sorted(map(short, map(one_block, values))))}"
    if field == THERE or values == {None}:
        return "the file is still there" if wanted is None else "the file is not there under any of its names"
    if field == "mode":
        return f"mode is {' and '.join(f'{one:04o}' for one in values if isinstance(one, int))}, not {wanted:04o}"
    return f"its content is {there}" if field == "held" else f"{field} is {there}, not {short(wanted)}"


def one_block(value: Value) -> Value:
    """Return a description of one block, or its signature in a tuple as `short` expects it."""
    return "missing" if value is None else "zero" if value == "-" else (str(value),)


def short(value: Value) -> str:
    """Return a value for a report; blocks by their kind of damage, so that equal failures have equal texts."""
    if isinstance(value, tuple):
        strange = {"old": "old data of the disk", "other": "blocks of another file", OTHER_CONTENT: "garbage"}
        return " and ".join(strange[one] for one in strange if one in value) or "other blocks"
    words = {"": "nothing", "+": "whole", OTHER_CONTENT: "garbage", UNCUT: "zeroed at its end"}
    return words.get(str(value), str(value))
