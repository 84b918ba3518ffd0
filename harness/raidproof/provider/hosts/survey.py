"""A read-only survey of a machine's disks: their marks of adoption, and the facts by which the gate judges them."""

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
"""Size in bytes of a mark; a disk has one copy at its beginning and one at its end."""
MAGIC = b"raidproof mark 1\n"
"""The first bytes of a mark; no signature that wipefs or blkid finds begins with them."""

_COLUMNS = "KNAME,MAJ:MIN,TYPE,SIZE,RO,MODEL,SERIAL,WWN,MOUNTPOINT"
_TRUE = {"1", "true"}
NOTHING_FOUND = 2
"""Exit status of blkid if no device has a signature (blkid(8))."""


class Identity(State):
    """The properties by which raidproof recognises a disk, whatever its kernel name."""

    id: str
    """The disk's path in /dev/disk/by-id, as in the inventory."""
    size: int
    """The size of the disk in bytes."""
    model: str | None = None
    serial: str | None = None
    """The manufacturer's serial number."""
    wwn: str | None = None
    """The World Wide Name of the disk."""

    def __str__(self) -> str:
        return f"{self.id} (model {self.model}, serial number {self.serial}, WWN {self.wwn}, {self.size} bytes)"


class Mark(State):
    """The mark that adoption writes on a disk: it names the inventory and the disk."""

    inventory: str
    """A digest of the inventory, and of the machine-id of the server, at the adoption."""
    serial: str
    """The name of the disk in scenarios: disk0, disk1, ..."""
    identity: Identity


def encode(mark: Mark) -> bytes:
    """Return the bytes of a mark, as written on a disk.

    Raises:
        ValueError: the mark is longer than `BLOCK`.
    """
    body = mark.model_dump_json().encode()
    block = MAGIC + b"%08x %d\n" % (zlib.crc32(body), len(body)) + body
    # A mark is text and zeros: no tool takes it for a partition table (bytes 510 and 511) or an ext4 (byte 1080).
    if len(block) > BLOCK:
        raise ValueError(f"a mark of {len(block)} bytes does not fit into {BLOCK}")
    return block.ljust(BLOCK, b"\0")


def decode(block: bytes) -> Mark | None:
    """Return the mark in the bytes of a disk; None if they are no mark, or a damaged one."""
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
    """A signature that wipefs or blkid finds on a disk or partition, and that identifies its content."""

    device: str
    """The kernel name of the device with the signature: ``sdb`` or ``sdb1``."""
    kind: str
    """The type in libblkid: ext4, xfs, linux_raid_member, LVM2_member, crypto_LUKS, zfs_member, gpt, dos, ..."""
    label: str | None = None
    """The label of the file system; of an array's member the array's name, HOMEHOST:NAME (mdadm(8))."""
    uuid: str | None = None

    @property
    def owned(self) -> bool:
        """Whether only raidproof can have written the signature: the home host or the UUID is raidproof's."""
        if self.kind == "linux_raid_member":
            return self.label is not None and self.label.startswith(f"{HOMEHOST}:")
        return self.kind in {"xfs_external_log", "jbd"} and (self.uuid or "").startswith(UUID_PREFIX)

    def __str__(self) -> str:
        named = " ".join(f"{word} {value!r}" for word, value in (("named", self.label),) if value)
        return f"{self.kind}{' ' + named if named else ''} on {self.device}"


class DiskFacts(State):
    """The survey's findings about one block device and its partitions."""

    name: str
    """The kernel name of the device in the present boot, such as ``sdb``."""
    number: str
    """The major and minor number of the device, as ``8:16``."""
    kind: str
    """The type of the device in lsblk: disk, part, lvm, raid5, crypt, mpath, loop, rom, ..."""
    size: int
    """The size of the device in bytes."""
    read_only: bool
    model: str | None = None
    serial: str | None = None
    """The manufacturer's serial number."""
    wwn: str | None = None
    """The World Wide Name of the disk."""
    partitions: tuple[str, ...] = ()
    """The kernel names of the partitions."""
    mounts: tuple[str, ...] = ()
    """The mount points of the device, and of devices stacked on the device."""
    swaps: tuple[str, ...] = ()
    """The device or partitions that are used as swap."""
    holders: tuple[str, ...] = ()
    """The kernel names of block devices stacked on the device: md0, dm-3, bcache0, loop2."""
    openers: tuple[str, ...] = ()
    """The processes that have the device open, as ``NAME (PID)``."""
    claimed: bool = False
    """Whether the kernel refuses to open the device exclusively, although no holder is known."""
    signatures: tuple[Signature, ...] = ()
    blank: bool = False
    """Whether the first and the last MiB of the device are zero, except for raidproof's mark."""
    mark: Mark | None = None
    """The mark in the first 4 KiB of the device, or else in the last 4 KiB; None: there is no mark."""
    first_mark: bool = False
    """Whether the first 4 KiB of the device contain a mark."""
    unknown: tuple[str, ...] = ()
    """Descriptions of the facts about the device that could not be determined."""


class Survey(State):
    """The disks of one machine, as found by one survey."""

    machine: str
    """The name of the machine in messages."""
    machine_id: str
    """The content of /etc/machine-id, which differs between installations."""
    links: dict[str, str]
    """The number of the block device to which each requested path leads, as ``8:16``."""
    dangling: tuple[str, ...] = ()
    """The requested paths that exist, but do not lead to a block device."""
    disks: dict[str, DiskFacts]
    """The block devices of the machine, by number (``8:16``)."""
    unknown: tuple[str, ...] = ()
    """Descriptions of the facts about the machine that could not be determined."""


def probe_command(paths: Iterable[str]) -> list[str]:
    """Return the command that inspects the disks to which paths lead.

    The program `raidproof.guest.disk_probe` is the command's standard input.
    """
    return ["python3", "-I", "-", *paths]


def lsblk_command() -> list[str]:
    """Return the lsblk command that lists all block devices, with the devices stacked on each."""
    return ["lsblk", "--json", "--bytes", "--output", _COLUMNS]


def wipefs_command(names: Iterable[str]) -> list[str]:
    """Return the wipefs command that lists every signature on devices, given by kernel name."""
    return ["wipefs", "--no-act", "--json", *(f"/dev/{name}" for name in names)]


def blkid_command(names: Iterable[str]) -> list[str]:
    """Return the blkid command that reads the signatures of devices, given by kernel name, without blkid's cache."""
    return ["blkid", "--probe", "--output", "export", *(f"/dev/{name}" for name in names)]


class BlockDevice(State):
    """One block device in the output of lsblk; the fields have the same meaning as in `DiskFacts`."""

    name: str
    number: str
    kind: str
    size: int
    """The size of the device in bytes."""
    read_only: bool
    model: str | None
    serial: str | None
    wwn: str | None
    mounts: tuple[str, ...]
    """The mount points of the device, and of devices stacked on the device."""


def parse_lsblk(text: str) -> dict[str, BlockDevice]:
    """Return the block devices in the output of lsblk, by number (``8:16``).

    Raises:
        RigError: the output is truncated or lacks a column.
    """
    try:
        found: dict[str, BlockDevice] = {}
        for device in json.loads(text)["blockdevices"]:
            _flatten(device, found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RigError(f"the output of lsblk is incomplete: {error!r}: {text.strip()[-200:]}") from error
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
        # In lsblk before 2.33 every value is a string.
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
    """Return the signatures in the output of wipefs.

    Raises:
        RigError: the output is truncated or lacks a key.
    """
    try:
        return tuple(
            Signature(device=one["device"], kind=one["type"], label=one["label"] or None, uuid=one["uuid"] or None)
            for one in json.loads(text)["signatures"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"the output of wipefs is incomplete: {error!r}: {text.strip()[-200:]}") from error


def parse_blkid(text: str) -> tuple[Signature, ...]:
    """Return the signatures in the output of blkid in the format ``export``: one paragraph per device.

    Raises:
        RigError: a line is not KEY=VALUE, or a paragraph names no device.
    """
    found = []
    for paragraph in filter(None, text.split("\n\n")):
        lines = paragraph.strip().splitlines()
        if wrong := next((line for line in lines if "=" not in line), None):
            raise RigError(f"a line in the output of blkid is not KEY=VALUE: {wrong!r}")
        tags = dict(line.split("=", 1) for line in lines)
        if "DEVNAME" not in tags:
            raise RigError(f"a paragraph in the output of blkid has no DEVNAME: {paragraph.strip()[-200:]}")
        device = tags["DEVNAME"].rpartition("/")[2]
        uuid = tags.get("UUID") or tags.get("LOGUUID")
        found += [
            Signature(device=device, kind=tags[key], label=tags.get("LABEL"), uuid=uuid)
            for key in ("TYPE", "PTTYPE")
            if key in tags
        ]
    return tuple(found)


class Probed(State):
    """The output of `raidproof.guest.disk_probe`, the program that inspects disks on a machine."""

    machine_id: str
    """The content of /etc/machine-id; empty if it could not be read."""
    links: dict[str, str]
    """The number of the block device to which each requested path leads, as ``8:16``."""
    dangling: tuple[str, ...]
    """The requested paths that exist, but do not lead to a block device."""
    facts: dict[str, dict[str, tuple[str, ...]]]
    """The values of each fact (``size``, ``mount``, ...), by the number of the device and the name of the fact."""
    incomplete: tuple[str, ...]
    """The files and folders that could not be read."""


def parse_probe(text: str) -> Probed:
    """Return the findings in the output of the program that inspects disks.

    Raises:
        RigError: the output is truncated, or a line has an unknown form.
    """
    lines = [line.split("\t") for line in text.splitlines()]
    if not lines or lines[-1] != ["end"]:
        raise RigError(
            f"the output of the program that inspects the disks is truncated; it ends with {text.strip()[-200:]!r}"
        )
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
                raise RigError(f"the output of the program that inspects the disks has an invalid line: {line!r}")
    if not machine_id:
        incomplete.append("/etc/machine-id")
    return Probed(
        machine_id=machine_id,
        links=links,
        dangling=tuple(dangling),
        facts=facts,
        incomplete=tuple(incomplete),
    )


def inspect(machine: Machine, paths: Iterable[str]) -> Probed:
    """Return what a machine's kernel knows of the disks to which paths lead: identity, size, users, marks.

    Raises:
        RigError: the machine has no Python, or the output of the program that inspects disks is truncated.
    """
    seen = machine.run(probe_command(paths), stdin=Path(probe.__file__).read_text())
    if not seen.ok:
        raise RigError(f"{machine.name}: the disks could not be inspected: {seen.stderr.strip()[-500:]}")
    return parse_probe(seen.stdout)


def survey(machine: Machine, paths: Sequence[str]) -> Survey:
    """Return a survey of a machine's block devices, made by four commands that do not write.

    ``paths`` are paths in /dev/disk/by-id. The disks to which they lead are inspected in detail.

    Raises:
        RigError: the machine has no Python, or the output of the program that inspects disks is truncated.
    """
    probed = inspect(machine, paths)
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
    """Return the survey of the machine ``machine``, from the outputs of the four commands.

    ``listed``, ``signed`` and ``carried`` are the results of lsblk, wipefs and blkid; None: there was no disk to read.
    A failed command or an invalid output makes the survey incomplete, and is described in `Survey.unknown`.
    """
    unknown = list(probed.incomplete)
    devices: dict[str, BlockDevice] = {}
    signatures: list[Signature] = []
    try:
        devices = parse_lsblk(_output(listed, {0}))
        if signed is not None and carried is not None:
            signatures = [*parse_wipefs(_output(signed, {0})), *parse_blkid(_output(carried, {0, NOTHING_FOUND}))]
    except RigError as error:
        unknown.append(str(error))
    # The survey has all devices: one that was not requested may be another path to a requested disk.
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
        unknown.append(f"lsblk does not list device {number}")
    elif (device.name, str(device.size)) != (name, size):
        unknown.append(f"lsblk lists another device as {number}: {device.name}, {device.size} bytes")
    mine = {name, *facts.get("partition", ())}
    first, last = (_mark(facts.get(word, ())) for word in ("first", "last"))
    if first is not None:
        # The last block may be data of an array: the parity of its members' marks can look like a mark.
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
    """Yield each signature once: wipefs and blkid report the same ones, and a superblock may have several copies."""
    known = list(dict.fromkeys(signatures))
    for one in known:
        # wipefs reports no UUID of an XFS log; blkid does.
        nameless = one.uuid is None and one.label is None
        if not nameless or not any(
            (other.device, other.kind) == (one.device, one.kind) and other != one for other in known
        ):
            yield one
