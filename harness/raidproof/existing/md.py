"""md arrays of a server: the output of mdadm --detail and mdadm --examine, and the file /proc/mdstat."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from raidproof.core.units import KIB, MIB
from raidproof.existing.given import Given, shortened
from raidproof.storage.array.level import LEVELS, Level
from raidproof.storage.array.member_flags import FAILFAST, WRITE_MOSTLY

Policy = Literal["none", "resync", "bitmap", "journal", "ppl"]
_HEADING = re.compile(r"^(/dev/\S+):\s*$")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z /-]*?) : (.*)$")
_ROW = re.compile(r"^\s+(?:\d+|-)\s+\d+\s+\d+\s+(?P<slot>\d+|-)\s+(?P<state>[^/]*?)\s*(?P<path>/dev/\S+)?\s*$")
_COPIES = re.compile(r"\b(near|far|offset)=(\d{1,3})\b")
_MDSTAT = re.compile(r"^(?P<name>md\S*) : (?P<state>\S+)(?P<flags>(?: \([^)]*\))*)(?P<rest>.*)$")
_MDSTAT_MEMBER = re.compile(r"^(?P<name>[^\[\s]+)\[(?P<slot>\d+)\](?P<flags>(?:\([A-Z]\))*)$")
_MDSTAT_ACTION = re.compile(r"\b(resync|recovery|reshape|check|repair)\s*=\s*([\w.]+%?)")
_MDSTAT_KNOWN = re.compile(
    r"\[[=>.]+\]|\b(?:resync|recovery|reshape|check|repair)\s*=\s*[\w.]+%?|\(\d+/\d+\)|\bfinish=\S+|\bspeed=\S+"
    r"|\b\d+ blocks\b|\bsuper \S{1,20}|\blevel \d+,|\b\d{1,9}[kK] chunks?\b,?|\balgorithm \d{1,3}(?!\S)"
    r"|\b\d{1,3} (?:near|far|offset)-copies\b|\[\d{1,4}/\d{1,4}\] \[[U_]+\]"
    r"|\bbitmap: \d+/\d+ pages \[\d+KB\], \d+[KM]?B chunk(?:, file: \S+)?|(?<= )PPL(?!\S)"
)
"""The words of an array's lines in /proc/mdstat from which a field of `MdArray` comes, or that are only of the state
at the time of reading: sizes, the rate of a resync."""
_DETAIL_READ = frozenset(
    [
        *("Raid Level", "Raid Devices", "Intent Bitmap", "Chunk Size", "Layout", "Consistency Policy", "Version"),
        "Container",
    ]
)
_DETAIL_STATE = frozenset(
    [
        *("Creation Time", "Array Size", "Used Dev Size", "Total Devices", "Persistence", "Update Time", "Name"),
        *("Active Devices", "Working Devices", "Failed Devices", "Spare Devices", "Events", "Preferred Minor"),
        *("UUID", "Member Arrays", "Number Major Minor RaidDevice State", "Number Major Minor RaidDevice"),
    ]
)
"""Fields of mdadm --detail whose values are in other fields, or which identify the array."""
_EXAMINE_READ = frozenset(
    [
        *("Raid Level", "Raid Devices", "Layout", "Chunk Size", "Version", "Feature Map", "Name", "Device Role"),
        *("Array UUID", "UUID"),
    ]
)
_EXAMINE_STATE = frozenset(
    [
        *("Magic", "Creation Time", "Array Size", "Used Dev Size", "Avail Dev Size", "Total Devices", "Data Offset"),
        *("Super Offset", "Unused Space", "Device UUID", "Update Time", "Bad Block Log", "Checksum", "Events"),
        *("State", "Array State", "Preferred Minor", "Active Devices", "Working Devices", "Failed Devices"),
        *("Spare Devices", "Internal Bitmap", "Recovery Offset", "Journal"),
    ]
)
"""As `_DETAIL_STATE`, for mdadm --examine."""
_FLAG = re.compile(r"\([A-Z]\)")
_FLAGS: Mapping[str, str] = {
    "(W)": WRITE_MOSTLY,
    "writemostly": WRITE_MOSTLY,
    WRITE_MOSTLY: WRITE_MOSTLY,
    FAILFAST: FAILFAST,
}
"""Flags of a member by their words in /proc/mdstat, which lacks failfast, in mdadm --detail and mdadm --examine."""
_ROLES: Mapping[str, Literal["faulty", "journal", "spare"]] = {"(F)": "faulty", "(J)": "journal", "(S)": "spare"}
_QUIET_STATES = frozenset({"clean", "active", "active-idle"})
_ROW_WORDS = frozenset({"active", "sync", "spare", "rebuilding", "faulty", "journal", "removed", "set-A", "set-B"})
"""States of a device from which its role comes. The copies of a RAID10 (``set-A``) follow from its layout."""
FEATURES = {0x1: "bitmap", 0x200: "journal", 0x400: "ppl", 0x800: "ppl"}
"""Bits of the feature map in a superblock, as mdadm --examine prints it, by consistency policy."""


class Member(BaseModel):
    """A device of an array."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The kernel's name of the device: ``sda1``."""
    role: Literal["active", "spare", "faulty", "journal"]
    slot: int | None = None
    flags: tuple[str, ...] = ()
    """``write-mostly``, ``failfast``."""


class MdArray(BaseModel):
    """One md array, as far as a file or a command describes it. None: the text does not have the value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The kernel's name, or the name in /dev/md: ``md0``."""
    source: str
    level: str
    """md's name of the level: ``raid5``, ``linear``, ``container``, ..."""
    raid_devices: int
    chunk_size: int | None = None
    layout: str | None = None
    """Name of the layout in mdadm: ``left-symmetric``, ``n2``."""
    policy: Policy | None = None
    bitmap: Literal["none", "internal", "external"] | None = None
    bitmap_chunk: str | None = None
    """What one bit of the bitmap covers, as the kernel writes it: ``65536KB``."""
    metadata: str | None = None
    degraded: int | None = None
    members: tuple[Member, ...] = ()
    others: tuple[str, ...] = ()
    """What else the text has about the array, in its words: ``sdb1(R)``, ``reshape = 12.6%``, unknown fields."""
    container: str | None = None
    """The container of external metadata (IMSM, DDF) that the array belongs to."""

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the members with a slot, in the order of their slots."""
        with_slot = [one for one in self.members if one.role == "active"]
        return tuple(one.name for one in sorted(with_slot, key=lambda one: (one.slot is None, one.slot or 0)))

    @property
    def kind(self) -> type[Level] | None:
        """The RAID level; None if plans have no such level."""
        return next((kind for _, kind in LEVELS.items() if kind.kernel_name == self.level), None)

    @property
    def lacks_one(self) -> bool:
        """Whether exactly one member is missing or not rebuilt, and its data are in the others."""
        return self.degraded == 1 and self.kind is not None and self.kind.redundant

    @property
    def write_mostly(self) -> tuple[str, ...]:
        """The names of the members with a slot from which md reads only if no other member has the data."""
        if self.kind is None or WRITE_MOSTLY not in self.kind.member_flags:
            return ()
        flagged = {one.name for one in self.members if WRITE_MOSTLY in one.flags}
        return tuple(name for name in self.active if name in flagged)

    def named(self, role: str) -> tuple[str, ...]:
        """Return the names of the devices with a role."""
        return tuple(one.name for one in self.members if one.role == role)


def device_name(path: str) -> str:
    """Return the name of a device without ``/dev/`` and ``/dev/md/``."""
    return path.removeprefix("/dev/").removeprefix("md/").removeprefix("mapper/")


def _parts(file: Given) -> list[tuple[int, str, list[tuple[int, str]]]]:
    """Return the parts of mdadm's output about one device each: number of the first line, device, numbered lines."""
    parts: list[tuple[int, str, list[tuple[int, str]]]] = []
    for number, line in file.lines():
        if heading := _HEADING.match(line):
            parts.append((number, heading[1], []))
        elif parts:
            parts[-1][2].append((number, line))
    return parts


def parse_detail(file: Given) -> tuple[MdArray, ...]:
    """Return the arrays in the output of ``mdadm --detail``, of one or several arrays.

    Raises:
        RequestError: the text has no array, or a value of an array is missing or malformed.
    """
    parts = _parts(file)
    if not parts:
        file.refuse(1, "has no line /dev/md...:", "give the output of: mdadm --detail /dev/md0")
    return tuple(_detailed(file, number, path, lines) for number, path, lines in parts)


def _detailed(file: Given, begin: int, path: str, lines: list[tuple[int, str]]) -> MdArray:
    fields, members = _fields(file, begin, lines), []
    for _, line in lines:
        row = _ROW.match(line)
        if row and row["path"]:
            slot = int(row["slot"]) if row["slot"].isdecimal() and len(row["slot"]) < 6 else None
            role, flags = _role(row["state"], slot), _flags(row["state"].split())
            members.append(Member(name=device_name(row["path"]), role=role, slot=slot, flags=flags))
    level = fields.word("Raid Level")
    devices = fields.count("Raid Devices") if level != "container" else 0
    bitmap = _bitmap(fields.get("Intent Bitmap"))
    others = list(_other_lines(lines, _DETAIL_READ, _DETAIL_STATE))
    if (policy := fields.get("Consistency Policy")) not in {None, "unknown", *get_args(Policy)}:
        others.append(f"Consistency Policy : {policy}")
    working = sum(member.role == "active" and member.slot is not None for member in members)
    rebuilding = sum("rebuilding" in line for _, line in lines if _ROW.match(line))
    return MdArray(
        name=device_name(path),
        source=file.at(begin),
        level=level,
        raid_devices=devices,
        chunk_size=fields.size("Chunk Size"),
        layout=_layout(level, fields.get("Layout")),
        policy=_policy(fields.get("Consistency Policy"), bitmap, members, level),
        bitmap=bitmap,
        metadata=fields.get("Version"),
        degraded=max(0, devices - working) + rebuilding if members else None,
        members=tuple(members),
        others=tuple(others),
        container=fields.get("Container"),
    )


def _other_lines(lines: list[tuple[int, str]], read: frozenset[str], state: frozenset[str]) -> Iterator[str]:
    """Yield what mdadm's lines about an array have beyond the fields ``read`` and ``state`` and the known devices."""
    for _, line in lines:
        row, field = _ROW.match(line), _FIELD.match(line)
        words = " ".join(line.split())
        if row:
            unknown = [word for word in row["state"].split() if word not in _ROW_WORDS and word not in _FLAGS]
            if unknown:
                yield f"{row['path'] or row['slot']}: {' '.join(unknown)}"
        elif field and field[1] == "State":
            unknown = [word for word in re.split(r",\s*", field[2].strip()) if word not in _QUIET_STATES]
            if unknown:
                yield f"State : {', '.join(unknown)}"
        elif field and field[1] == "Flags":
            unknown = [word for word in field[2].split() if word not in _FLAGS]
            if unknown:
                yield f"Flags : {' '.join(unknown)}"
        elif words and words not in state and not (field and field[1] in read | state):
            yield words


class _Fields:
    """The lines ``NAME : VALUE`` of one array, with their numbers."""

    def __init__(self, file: Given, begin: int, values: Mapping[str, tuple[int, str]]) -> None:
        self.file, self.begin, self.values = file, begin, values

    def get(self, name: str) -> str | None:
        return self.values[name][1] if name in self.values else None

    def word(self, name: str) -> str:
        if name not in self.values:
            self.file.refuse(self.begin, f"the line {name!r} is missing: the output is truncated")
        number, value = self.values[name]
        if not re.fullmatch(r"[\w-]{1,20}", value):
            self.file.refuse(number, f"{name}: unexpected value {shortened(value)!r}")
        return value

    def count(self, name: str) -> int:
        if name not in self.values:
            self.file.refuse(self.begin, f"the line {name!r} is missing: the output is truncated")
        number, value = self.values[name]
        if not re.fullmatch(r"[0-9]{1,4}", value):
            self.file.refuse(number, f"{name}: not a number of devices: {shortened(value)!r}")
        return int(value)

    def size(self, name: str) -> int | None:
        if name not in self.values:
            return None
        number, value = self.values[name]
        found = re.fullmatch(r"([0-9]{1,9})([KM]?)B?", value)
        if found is None:
            self.file.refuse(number, f"{name}: not a size: {shortened(value)!r}")
        return int(found[1]) * {"": 1, "K": KIB, "M": MIB}[found[2]]


def _fields(file: Given, begin: int, lines: list[tuple[int, str]]) -> _Fields:
    values = {}
    for number, line in lines:
        if found := _FIELD.match(line):
            values[found[1]] = (number, found[2].strip())
    return _Fields(file, begin, values)


def _role(state: str, slot: int | None) -> Literal["active", "spare", "faulty", "journal"]:
    words = state.split()
    if "faulty" in words:
        return "faulty"
    if "journal" in words:
        return "journal"
    # A spare that is being rebuilt has a slot: mdadm prints "spare rebuilding".
    return "spare" if "spare" in words and slot is None else "active"


def _bitmap(text: str | None) -> Literal["none", "internal", "external"]:
    if text is None:
        return "none"
    return "internal" if text.startswith("Internal") else "external"


def _policy(
    text: str | None, bitmap: str, members: list[Member], level: str
) -> Literal["none", "resync", "bitmap", "journal", "ppl"] | None:
    """Return the consistency policy; mdadm before 4.0 does not print it, and has neither journal nor PPL."""
    if text in {"none", "resync", "bitmap", "journal", "ppl"}:
        return text  # type: ignore[return-value]  # one of the words above
    if any(member.role == "journal" for member in members):
        return "journal"
    if level in {"raid0", "linear", "container"}:
        return "none"
    return "resync" if bitmap == "none" else "bitmap"


def _layout(level: str, text: str | None) -> str | None:
    if text is None or level not in {"raid5", "raid6", "raid10"}:
        return None
    if level != "raid10":
        return text
    copies = {word: int(number) for word, number in _COPIES.findall(text)}
    chosen = next((word for word in ("offset", "far") if copies.get(word, 1) > 1), "near")
    return f"{chosen[0]}{copies.get(chosen, 2)}"


def parse_mdstat(file: Given) -> tuple[MdArray, ...]:
    """Return the active arrays in the file /proc/mdstat.

    Raises:
        RequestError: the text is not of /proc/mdstat, or an array's number of members is missing.
    """
    lines = list(file.lines())
    if not any(line.startswith(("Personalities", "unused devices")) for _, line in lines):
        file.refuse(1, "has no line Personalities", "give the content of /proc/mdstat")
    found = []
    for place, (number, line) in enumerate(lines):
        begun = _MDSTAT.match(line)
        if begun is None or begun["state"] != "active":
            continue
        below = [text for _, text in _paragraph(lines[place + 1 :])]
        found.append(_from_mdstat(file, number, begun, " ".join(below)))
    return tuple(found)


def _paragraph(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if not line.startswith((" ", "\t")):
            return
        yield number, line


def _from_mdstat(file: Given, number: int, begun: re.Match[str], below: str) -> MdArray:
    level, *words = begun["rest"].split() or [""]
    if not re.fullmatch(r"[\w-]{1,20}", level):
        file.refuse(number, f"not a RAID level: {shortened(level)!r}")
    members = [
        Member(
            name=one["name"],
            role=_flagged(one["flags"]),
            slot=int(one["slot"][:6]),
            flags=_flags(_FLAG.findall(one["flags"])),
        )
        for one in map(_MDSTAT_MEMBER.match, words)
        if one
    ]
    others = [*re.findall(r"\([^)]*\)", begun["flags"]), *(word for word in words if not _MDSTAT_MEMBER.match(word))]
    for one in filter(None, map(_MDSTAT_MEMBER.match, words)):
        others += [f"{one['name']}{flag}" for flag in _FLAG.findall(one["flags"]) if flag not in {*_ROLES, *_FLAGS}]
    others += [f"{action} = {progress}" for action, progress in _MDSTAT_ACTION.findall(below)]
    # mdstat numbers devices by descriptor, not by slot; for an array without replaced members these are equal.
    shape = re.search(r"\[(\d{1,4})/(\d{1,4})\] \[[U_]+\]", below)
    if level not in {"raid0", "linear"} and shape is None:
        file.refuse(number, "the line with the number of members, such as [4/4] [UUUU], is missing")
    devices = int(shape[1]) if shape else sum(one.role == "active" for one in members)
    bitmap: Literal["none", "internal", "external"] = "internal" if "bitmap:" in below else "none"
    if re.search(r"\bbitmap:[^:]* chunk, file: ", below):
        bitmap = "external"
    layout, unknown = _mdstat_layout(level, devices, below)
    others += unknown + _MDSTAT_KNOWN.sub(" ", below).split()
    return MdArray(
        name=begun["name"],
        source=file.at(number),
        level=level,
        raid_devices=devices,
        chunk_size=_mdstat_chunk(below),
        layout=layout,
        policy=_policy(None, bitmap, members, level) if " PPL" not in below else "ppl",
        bitmap=bitmap,
        bitmap_chunk=next(iter(re.findall(r"\bbitmap: [^:,]*, (\d+[KM]?B) chunk", below)), None),
        metadata=next(iter(re.findall(r"\bsuper (\S{1,20})", below)), "0.90"),
        degraded=devices - int(shape[2]) if shape else 0,
        members=tuple(members),
        others=tuple(others),
    )


def _flags(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_FLAGS[word] for word in words if word in _FLAGS))


def _flagged(flags: str) -> Literal["active", "spare", "faulty", "journal"]:
    return next((role for flag, role in _ROLES.items() if flag in flags), "active")


def _mdstat_chunk(below: str) -> int | None:
    # "512k chunk" for parity levels, "512k chunks" for RAID0 and RAID10. The bitmap's line has "65536KB chunk".
    found = re.search(r"\b(\d{1,9})[kK] chunks?\b", below)
    return int(found[1]) * KIB if found else None


def _mdstat_layout(level: str, devices: int, below: str) -> tuple[str | None, list[str]]:
    """Return the name of the layout, and the words about it that name no layout of mdadm."""
    if level == "raid10":
        copies = re.findall(r"\b(\d{1,3}) ((?:near|far|offset)-copies)\b", below)
        # The kernel prints two kinds for a layout that mdadm cannot create.
        name = f"{copies[-1][1][0]}{copies[-1][0]}" if copies else None
        return name, [" ".join(one) for one in copies[:-1]]
    found = re.search(r"\balgorithm (\d{1,3})(?!\S)", below)
    kind = next((one for _, one in LEVELS.items() if one.kernel_name == level), None)
    if found is None or kind is None:
        return None, []
    names = [name for name, number in kind.layouts(devices).items() if number == int(found[1])]
    return (names[0], []) if names else (None, [found[0]])


def parse_examine(file: Given) -> tuple[MdArray, ...]:
    """Return the arrays that the superblocks in the output of ``mdadm --examine`` describe.

    Raises:
        RequestError: the text has no superblock, or a value is missing or malformed.
    """
    blocks: dict[str, list[tuple[int, str, _Fields]]] = {}
    texts: dict[str, list[tuple[int, str]]] = {}
    for number, path, lines in _parts(file):
        fields = _fields(file, number, lines)
        if (uuid := fields.get("Array UUID") or fields.get("UUID")) is not None and fields.get("Raid Level"):
            blocks.setdefault(uuid, []).append((number, path, fields))
            texts.setdefault(uuid, []).extend(lines)
    if not blocks:
        file.refuse(1, "has no superblock of an array", "give the output of: mdadm --examine /dev/sd?1")
    return tuple(_examined(file, found, texts[uuid]) for uuid, found in blocks.items())


def _examined(file: Given, found: list[tuple[int, str, _Fields]], lines: list[tuple[int, str]]) -> MdArray:
    number, _, fields = found[0]
    level = fields.word("Raid Level")
    members = []
    for _, path, one in found:
        role = one.get("Device Role") or ""
        slot = re.fullmatch(r"Active device (\d{1,4})", role)
        kind: Literal["active", "spare", "journal"] = "active" if slot or not role else "spare"
        kind = "journal" if role == "Journal" else kind
        flags = _flags((one.get("Flags") or "").split())
        members.append(Member(name=device_name(path), role=kind, slot=int(slot[1]) if slot else None, flags=flags))
    features = fields.get("Feature Map") or "0x0"
    bits = int(features, 16) if re.fullmatch(r"0x[0-9a-f]{1,8}", features) else 0
    policies = [policy for bit, policy in FEATURES.items() if bits & bit]
    array = (fields.get("Name") or "").split(" ")[0].rpartition(":")[2]
    return MdArray(
        name=f"md{array}" if array.isdecimal() else array or "md",
        source=file.at(number),
        level=level,
        raid_devices=fields.count("Raid Devices"),
        chunk_size=fields.size("Chunk Size"),
        layout=_layout(level, fields.get("Layout")),
        policy=_policy(policies[-1] if policies else None, "none", members, level),
        bitmap="internal" if bits & 0x1 else "none",
        metadata=fields.get("Version"),
        members=tuple(members),
        others=tuple(dict.fromkeys(_other_lines(lines, _EXAMINE_READ, _EXAMINE_STATE))),
    )
