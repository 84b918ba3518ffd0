"""A read-only survey of a machine's disks: marks of adoption, and the facts on which the gate decides."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import HOMEHOST, UUID_PREFIX, Machine, State
from raidproof.guest import disk_probe as probe

BLOCK = 4096
"""Bytes of each copy of a mark."""
MAGIC = b"raidproof mark 1\n"
"""Not mistaken for a signature by any tool: none has one at these bytes."""

_COLUMNS = "KNAME,MAJ:MIN,TYPE,SIZE,RO,MODEL,SERIAL,WWN,MOUNTPOINT"
_TRUE = {"1", "true"}
NOTHING_FOUND = 2
"""Status of blkid if no device has a signature (blkid(8))."""


class Identity(State):
    """Identity of a disk, independent of its kernel name."""

    id: str
    """The path in /dev/disk/by-id by which the disk was requested."""
    size: int
    """Bytes."""
    model: str | None = None
    serial: str | None = None
    """The manufacturer's serial number."""
    wwn: str | None = None

    def __str__(self) -> str:
        return f"{self.id} (model {self.model}, serial number {self.serial}, WWN {self.wwn}, {self.size} bytes)"


class Mark(State):
    """Marks a disk as adopted by raidproof: by which inventory, and as which disk."""

    inventory: str
    """Digest of the confirmed inventory, and of the machine on which it was confirmed."""
    serial: str
    """The name of the disk in scenarios: disk0, disk1, ..."""
    identity: Identity


def encode(mark: Mark) -> bytes:
    """Return the block that is written for a mark."""
    body = mark.model_dump_json().encode()
    block = MAGIC + b"%08x %d\n" % (zlib.crc32(body), len(body)) + body
    # The block must not look like a partition table (signature at bytes 510 and 511) or ext4 (at 1080).
    if len(block) > BLOCK:
        raise ValueError(f"a mark of {len(block)} bytes does not fit into {BLOCK}")
    return block.ljust(BLOCK, b"\0")


def decode(block: bytes) -> Mark | None:
    """Parse a block; return None if it is not a mark, or a damaged one."""
    head, _, rest = block.removeprefix(MAGIC).partition(b"\n")
    if not block.startswith(MAGIC):
        return None
    try:
        crc, length = int(head[:8], 16), int(head[9:])
        body = rest[:length]
        if zlib.crc32(body) != crc or len(body) != length:
            return None
        return Mark.model_validate(json.loads(body))
    except (ValueError, ValidationError):
        return None


class Signature(State):
    """A signature on a disk, or on a partition of it, which identifies its content."""

    device: str
    """The kernel name of the device with the signature: ``sdb`` or ``sdb1``."""
    kind: str
    """As libblkid names it: ext4, xfs, linux_raid_member, LVM2_member, crypto_LUKS, zfs_member, gpt, dos, ..."""
    label: str | None = None
    """For a RAID member the array's name, prefixed with its home host."""
    uuid: str | None = None

    @property
    def owned(self) -> bool:
        """Whether only raidproof can have written it."""
        if self.kind == "linux_raid_member":
            return self.label is not None and self.label.startswith(f"{HOMEHOST}:")
        return self.kind in {"xfs_external_log", "jbd"} and (self.uuid or "").startswith(UUID_PREFIX)

    def __str__(self) -> str:
        named = " ".join(f"{word} {value!r}" for word, value in (("named", self.label),) if value)
        return f"{self.kind}{' ' + named if named else ''} on {self.device}"


class DiskFacts(State):
    """One block device as found, including the uses of its partitions."""

    name: str
    """Its kernel name in this boot."""
    number: str
    """Major and minor number, as ``8:16``."""
    kind: str
    """As lsblk names it: disk, part, lvm, raid5, crypt, mpath, loop, rom, ..."""
    size: int
    """Bytes."""
    read_only: bool
    model: str | None = None
    serial: str | None = None
    wwn: str | None = None
    partitions: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    """Mount points of the device, or of devices stacked on it."""
    swaps: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    """Block devices that are stacked on it: md0, dm-3, bcache0, loop2."""
    openers: tuple[str, ...] = ()
    """Processes that have it open, by name and number."""
    claimed: bool = False
    """Whether the kernel refuses an exclusive open, without a known holder."""
    signatures: tuple[Signature, ...] = ()
    blank: bool = False
    """Whether its first and last MiB are zero, except for raidproof's mark."""
    mark: Mark | None = None
    """The mark in its first 4 KiB, or else in its last."""
    first_mark: bool = False
    """Whether the first 4 KiB contain the mark."""
    unknown: tuple[str, ...] = ()
    """Facts that could not be determined."""


class Survey(State):
    """The disks of one machine, as found at one time."""

    machine: str
    machine_id: str
    """From /etc/machine-id, which differs between installations."""
    links: dict[str, str]
    """Number of the block device behind each requested name."""
    dangling: tuple[str, ...] = ()
    """Names that exist, but lead to nothing or to no block device."""
    disks: dict[str, DiskFacts]
    """By number."""
    unknown: tuple[str, ...] = ()
    """Facts that could not be determined at all."""


def probe_command(paths: Iterable[str]) -> list[str]:
    """Return the command that inspects the disks behind paths; the program is its standard input."""
    return ["python3", "-I", "-", *paths]


def lsblk_command() -> list[str]:
    """Return the command that lists all block devices with the devices stacked on them."""
    return ["lsblk", "--json", "--bytes", "--output", _COLUMNS]


def wipefs_command(names: Iterable[str]) -> list[str]:
    """Return the command that lists every signature on devices."""
    return ["wipefs", "--no-act", "--json", *(f"/dev/{name}" for name in names)]


def blkid_command(names: Iterable[str]) -> list[str]:
    """Return the command that reads the signatures of devices directly, without blkid's cache."""
    return ["blkid", "--probe", "--output", "export", *(f"/dev/{name}" for name in names)]


class BlockDevice(State):
    """One block device from lsblk; ``mounts`` includes those of devices stacked on it."""

    name: str
    number: str
    kind: str
    size: int
    read_only: bool
    model: str | None
    serial: str | None
    wwn: str | None
    mounts: tuple[str, ...]


def parse_lsblk(text: str) -> dict[str, BlockDevice]:
    """Parse all devices, by number.

    Raises:
        RigError: the output is not whole.
    """
    try:
        found: dict[str, BlockDevice] = {}
        for device in json.loads(text)["blockdevices"]:
            _flatten(device, found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"lsblk: not what it should print: {error!r}: {text.strip()[-200:]}") from error
    return found


def _flatten(device: Mapping[str, Any], found: dict[str, BlockDevice]) -> tuple[str, ...]:
    mounts = {device["mountpoint"]} - {None}
    for child in device.get("children", ()):
        mounts.update(_flatten(child, found))
    above = tuple(sorted(mounts))
    found[device["maj:min"]] = BlockDevice(
        name=device["kname"],
        number=device["maj:min"],
        kind=device["type"],
        # Before 2.33 every value is a string.
        size=int(device["size"]),
        read_only=str(device["ro"]).lower() in _TRUE,
        model=_word(device["model"]),
        serial=_word(device["serial"]),
        wwn=_word(device["wwn"]),
        mounts=above,
    )
    return above


def _word(value: str | None) -> str | None:
    return (value or "").strip() or None


def parse_wipefs(text: str) -> tuple[Signature, ...]:
    """Parse every signature.

    Raises:
        RigError: the output is not whole.
    """
    try:
        return tuple(
            Signature(device=one["device"], kind=one["type"], label=one["label"] or None, uuid=one["uuid"] or None)
            for one in json.loads(text)["signatures"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"wipefs: not what it should print: {error!r}: {text.strip()[-200:]}") from error


def parse_blkid(text: str) -> tuple[Signature, ...]:
    """Parse signatures in export format: one paragraph per device.

    Raises:
        RigError: a line has another form.
    """
    found = []
    for paragraph in filter(None, text.split("\n\n")):
        lines = paragraph.strip().splitlines()
        if wrong := next((line for line in lines if "=" not in line), None):
            raise RigError(f"blkid: not KEY=VALUE: {wrong!r}")
        tags = dict(line.split("=", 1) for line in lines)
        if "DEVNAME" not in tags:
            raise RigError(f"blkid: a device without a name: {paragraph.strip()[-200:]}")
        device = tags["DEVNAME"].rpartition("/")[2]
        uuid = tags.get("UUID") or tags.get("LOGUUID")
        found += [
            Signature(device=device, kind=tags[key], label=tags.get("LABEL"), uuid=uuid)
            for key in ("TYPE", "PTTYPE")
            if key in tags
        ]
    return tuple(found)


class Probed(State):
    """The findings of the probe."""

    machine_id: str
    links: dict[str, str]
    dangling: tuple[str, ...]
    facts: dict[str, dict[str, tuple[str, ...]]]
    """By number and word."""
    incomplete: tuple[str, ...]


def parse_probe(text: str) -> Probed:
    """Parse the output of the probe.

    Raises:
        RigError: the output is not whole.
    """
    lines = [line.split("\t") for line in text.splitlines()]
    if not lines or lines[-1] != ["end"]:
        raise RigError(f"the output of the disk probe was cut off: {text.strip()[-200:] or 'nothing'}")
    facts: dict[str, dict[str, tuple[str, ...]]] = {}
    links, dangling, incomplete, machine_id = {}, [], [], ""
    for line in lines[:-1]:
        match line:
            case ["machine", machine_id]:
                pass
            case ["link", path, number]:
                links[path] = number
            case ["dangling", path]:
                dangling.append(path)
            case ["incomplete", reason]:
                incomplete.append(reason)
            case [word, number, value]:
                of = facts.setdefault(number, {})
                of[word] = (*of.get(word, ()), value)
            case _:
                raise RigError(f"the output of the disk probe is invalid: {line!r}")
    if not machine_id:
        incomplete.append("/etc/machine-id")
    return Probed(
        machine_id=machine_id,
        links=links,
        dangling=tuple(dangling),
        facts=facts,
        incomplete=tuple(incomplete),
    )


def survey(machine: Machine, paths: Sequence[str]) -> Survey:
    """Collect all that a machine reports about the disks behind paths, with four commands that do not write.

    Raises:
        RigError: the machine has no Python, or the output of the probe was cut off.
    """
    source = Path(probe.__file__).read_text()
    seen = machine.run(probe_command(paths), stdin=source)
    if not seen.ok:
        raise RigError(f"{machine.name}: the disks could not be looked at: {seen.stderr.strip()[-500:]}")
    probed = parse_probe(seen.stdout)
    names = sorted(
        {name for of in probed.facts.values() for word in ("disk", "partition") for name in of.get(word, ())}
    )
    listed = machine.run(lsblk_command())
    signed = machine.run(wipefs_command(names)) if names else None
    carried = machine.run(blkid_command(names)) if names else None
    return assemble(machine.name, probed, listed, signed, carried)


def assemble(
    machine: str, probed: Probed, listed: Completed, signed: Completed | None, carried: Completed | None
) -> Survey:
    """Combine the findings; pure. A failed command or an invalid output makes the survey incomplete."""
    unknown = list(probed.incomplete)
    devices: dict[str, BlockDevice] = {}
    signatures: list[Signature] = []
    try:
        devices = parse_lsblk(_output(listed, {0}))
        if signed is not None and carried is not None:
            signatures = [*parse_wipefs(_output(signed, {0})), *parse_blkid(_output(carried, {0, NOTHING_FOUND}))]
    except RigError as error:
        unknown.append(str(error))
    # Devices that were not requested matter, too: one of them may be another path to a disk.
    disks = {number: DiskFacts(**_common(device)) for number, device in devices.items() if number not in probed.facts}
    for number, facts in probed.facts.items():
        disks[number] = _facts(number, facts, devices.get(number), signatures)
    return Survey(
        machine=machine,
        machine_id=probed.machine_id,
        links=probed.links,
        dangling=probed.dangling,
        disks=disks,
        unknown=tuple(unknown),
    )


def _output(ended: Completed, statuses: set[int]) -> str:
    if ended.status not in statuses:
        raise RigError(f"{ended.argv[0]}: status {ended.status}: {ended.stderr.strip()[-200:]}")
    return ended.stdout


def _common(device: BlockDevice) -> dict[str, Any]:
    return device.model_dump()


def _facts(
    number: str, facts: Mapping[str, tuple[str, ...]], device: BlockDevice | None, signatures: Iterable[Signature]
) -> DiskFacts:
    unknown = [*facts.get("unknown", ())]

    def one(word: str) -> str:
        values = facts.get(word, ())
        if len(values) != 1:
            unknown.append(word)
            return ""
        return values[0]

    name, size, read_only, blank = one("disk"), one("size"), one("ro"), one("blank")
    if device is None:
        unknown.append("lsblk does not list it")
    elif (device.name, str(device.size)) != (name, size):
        unknown.append(f"lsblk has another device: {device.name}, {device.size} bytes")
    mine = {name, *facts.get("partition", ())}
    first, last = (_mark(facts.get(word, ())) for word in ("first", "last"))
    if first is not None:
        # An array of raidproof extends to the end of its members, and the parity of their marks can look like a mark.
        last = None
    return DiskFacts(
        name=name,
        number=number,
        kind=device.kind if device else "unknown",
        size=int(size or 0),
        read_only=read_only != "0" or device is None or device.read_only,
        model=(device and device.model) or next(iter(facts.get("model", ())), None),
        serial=(device and device.serial) or next(iter(facts.get("serial", ())), None),
        wwn=(device and device.wwn) or next(iter(facts.get("wwn", ())), None),
        partitions=facts.get("partition", ()),
        mounts=tuple(sorted({*facts.get("mount", ()), *(device.mounts if device else ())} - {"[SWAP]"})),
        swaps=facts.get("swap", ()) or (("[SWAP]",) if device and "[SWAP]" in device.mounts else ()),
        holders=facts.get("holder", ()),
        openers=facts.get("opener", ()),
        claimed="claimed" in facts,
        signatures=tuple(_merged(one for one in signatures if one.device in mine)),
        blank=blank == "1",
        mark=first or last,
        first_mark=first is not None,
        unknown=tuple(unknown),
    )


def _mark(blocks: Sequence[str]) -> Mark | None:
    return decode(bytes.fromhex(blocks[0])) if blocks else None


def _merged(signatures: Iterable[Signature]) -> Iterator[Signature]:
    """Yield each signature once: two tools report it, and a superblock may have several copies."""
    known = list(dict.fromkeys(signatures))
    for one in known:
        # wipefs reports no UUID of an XFS log; blkid does.
        nameless = one.uuid is None and one.label is None
        if not nameless or not any(
            (other.device, other.kind) == (one.device, one.kind) and other != one for other in known
        ):
            yield one
