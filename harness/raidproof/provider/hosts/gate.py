"""The gate: decides whether raidproof may write to a disk of an existing machine.

A user must first adopt the disks of an inventory: confirm, once, that raidproof may destroy all data on them.
Adoption writes a mark on each disk.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine
from raidproof.core.units import MIB, format_size
from raidproof.guest import disk_writer as writer
from raidproof.provider.hosts.inventory import Inventory, MemberDisk, why_unstable
from raidproof.provider.hosts.survey import BLOCK, DiskFacts, Identity, Mark, Survey, encode
from raidproof.provider.hosts.survey import survey as look

SMALLEST = 64 * MIB
"""Smallest size in bytes of a usable disk: both ends, which are zeroed, and some space between them."""
_SYSTEM = frozenset({"/", "/boot", "/boot/efi", "/efi", "/usr", "/var", "/home"})
_KEY = object()

SHORT = 8
"""Number of characters of a fingerprint that a user must type for a confirmation."""
ENDS = 8 * MIB
"""Bytes that are zeroed at each end of a disk; they contain every superblock of md, of a log and of a journal."""
DISCARD_DEADLINE_S = 600.0
WRITE_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Refusal:
    """The gate's decision that raidproof must not write to a disk."""

    serial: str
    """The disk's name in scenarios, such as ``disk0``."""
    path: str
    """The disk's path in the inventory."""
    reasons: tuple[str, ...]
    """All reasons against the disk, as predicates for messages: ``mounted on /srv``."""

    def __str__(self) -> str:
        return f"{self.serial} {self.path}: {'; '.join(self.reasons)}"


class Permission:
    """The gate's permission to overwrite one disk. Every function that writes to a disk requires one."""

    def __init__(
        self, key: object, *, serial: str, path: str, number: str, identity: Identity, mark: Mark | None
    ) -> None:
        if key is not _KEY:
            raise TypeError("only raidproof.provider.hosts.gate may create a Permission")
        self.serial = serial
        """The disk's name in scenarios, such as ``disk0``."""
        self.path = path
        """The disk's path in /dev/disk/by-id."""
        self.number = number
        """Major and minor number of the judged device; a writer checks that ``path`` still leads to this device."""
        self.identity = identity
        self.mark = mark
        """The mark that the survey found on the disk; a writer checks that the disk still has this mark."""


def identity_of(path: str, facts: DiskFacts) -> Identity:
    """Return the identity (size, model, serial number, WWN) of the disk at ``path``, from the survey's ``facts``."""
    return Identity(id=path, size=facts.size, model=facts.model, serial=facts.serial, wwn=facts.wwn)


def judge(serial: str, disks: Mapping[str, MemberDisk], survey: Survey, inventory: str | None) -> Permission | Refusal:
    """Decide whether raidproof may overwrite the disk ``serial`` of an inventory's ``disks``.

    ``inventory`` is the digest of the adopted inventory, which the mark on the disk must contain. None: the disk is to
    be adopted, so it must be blank or already have a mark.
    """
    disk = disks[serial]
    facts = survey.disks.get(survey.links.get(disk.id, ""))
    reasons = [*_of_name(disk, survey, facts)]
    if facts is not None:
        identity = identity_of(disk.id, facts)
        reasons += [
            *_of_device(disk, facts),
            *_of_twins(serial, disks, survey, facts),
            *_of_use(facts),
            *_of_content(facts),
            *(_of_blank(facts, identity) if inventory is None else _of_mark(serial, facts, identity, inventory)),
        ]
    if survey.unknown:
        reasons.append(f"the survey of {survey.machine} is incomplete: {', '.join(survey.unknown)}")
    if reasons or facts is None:
        return Refusal(serial, disk.id, tuple(reasons))
    return Permission(
        _KEY,
        serial=serial,
        path=disk.id,
        number=facts.number,
        identity=identity_of(disk.id, facts),
        mark=facts.mark,
    )


def judge_all(
    disks: Mapping[str, MemberDisk], survey: Survey, inventory: str | None
) -> tuple[Permission | Refusal, ...]:
    """Return the decision on each disk of an inventory, in the order of the inventory; arguments as for `judge`."""
    return tuple(judge(serial, disks, survey, inventory) for serial in disks)


def require_permitted(verdicts: tuple[Permission | Refusal, ...]) -> tuple[Permission, ...]:
    """Return the permissions of all disks of an inventory: raidproof uses all of its disks, or none.

    Raises:
        RequestError: a disk is refused; the message contains every reason against every refused disk.
    """
    if refused := [verdict for verdict in verdicts if isinstance(verdict, Refusal)]:
        raise RequestError(
            "\n".join(
                [
                    f"{len(refused)} of {len(verdicts)} disks must not be used; nothing was written:",
                    *map(str, refused),
                ]
            )
        )
    return tuple(verdict for verdict in verdicts if isinstance(verdict, Permission))


def _of_name(disk: MemberDisk, survey: Survey, facts: DiskFacts | None) -> Iterator[str]:
    if unstable := why_unstable(disk.id):
        yield f"not named by a path in /dev/disk/by-id: {unstable}"
    if disk.id in survey.dangling:
        yield f"missing: {disk.id} on {survey.machine} does not lead to a block device"
    elif disk.id not in survey.links:
        yield f"missing: {survey.machine} has no {disk.id}"
    elif facts is None:
        yield f"{disk.id} is device {survey.links[disk.id]}, which lsblk on {survey.machine} does not list"


def _of_device(disk: MemberDisk, facts: DiskFacts) -> Iterator[str]:
    if facts.kind != "disk":
        yield f"not a whole disk: lsblk reports type {facts.kind!r}"
    if facts.read_only:
        yield "read-only"
    if facts.size < SMALLEST:
        yield f"too small: {facts.size} bytes, and at least {format_size(SMALLEST)} are needed"
    if disk.size is not None and disk.size != facts.size:
        yield f"has {format_size(facts.size)}, not the {format_size(disk.size)} of the inventory"
    if facts.unknown:
        yield f"the survey of the disk is incomplete: {', '.join(facts.unknown)}"


def _of_twins(serial: str, disks: Mapping[str, MemberDisk], survey: Survey, facts: DiskFacts) -> Iterator[str]:
    for other, disk in disks.items():
        if other != serial and survey.links.get(disk.id) == facts.number:
            yield f"the same disk as {other}, {disk.id}"
    for found in survey.disks.values():
        # With multipath a disk has several devices, and the use of one of them is not visible at the others.
        if found.number != facts.number and found.kind == "disk" and facts.wwn and found.wwn == facts.wwn:
            yield f"{found.name} is the same disk, by another path: both have the WWN {facts.wwn}"


def _of_use(facts: DiskFacts) -> Iterator[str]:
    if system := sorted(_SYSTEM.intersection(facts.mounts)):
        yield f"contains the running system: {', '.join(system)}"
    if facts.mounts:
        yield f"mounted on {', '.join(facts.mounts)}"
    if facts.swaps:
        yield f"used as swap: {', '.join(facts.swaps)}"
    if facts.holders:
        yield f"in use by {', '.join(facts.holders)}"
    if facts.openers:
        yield f"open in {', '.join(facts.openers)}"
    if facts.claimed:
        yield "in use: the kernel refuses to open the disk exclusively (O_EXCL)"


def _of_content(facts: DiskFacts) -> Iterator[str]:
    if facts.partitions:
        yield f"has partitions: {', '.join(facts.partitions)}"
    for signature in facts.signatures:
        if not signature.owned:
            yield f"has the signature {signature}, which raidproof did not write"


def _of_blank(facts: DiskFacts, identity: Identity) -> Iterator[str]:
    if facts.mark is not None and facts.mark.identity == identity and not list(_of_head(facts)):
        return
    if facts.mark is not None and facts.mark.identity != identity:
        yield f"has the mark of another disk: {facts.mark.identity}"
    for signature in facts.signatures:
        if signature.owned:
            yield f"has the signature {signature} of raidproof, but not raidproof's mark"
    if not facts.blank:
        # Encrypted or raw data has no signature, and may be valuable.
        yield "its first or last MiB is not zero, so it may contain data: zero both if the data is not needed"


def _of_head(facts: DiskFacts) -> Iterator[str]:
    # Only a log or journal of raidproof may overwrite the mark at byte 0; other bytes there come from another program.
    if not facts.first_mark and not any(one.owned and one.kind != "linux_raid_member" for one in facts.signatures):
        yield "a program other than raidproof has overwritten the mark at the beginning of the disk"


def _of_mark(serial: str, facts: DiskFacts, identity: Identity, inventory: str) -> Iterator[str]:
    mark = facts.mark
    if mark is None:
        yield "not adopted: the disk has no mark of raidproof; adopt it by ./raidproof hosts adopt INVENTORY"
        return
    yield from _of_head(facts)
    if mark.inventory != inventory:
        yield "adopted by another inventory, or this inventory has changed since: adopt the disk again"
    if mark.serial != serial:
        yield f"adopted as {mark.serial}: the order of the disks in the inventory has changed"
    if mark.identity != identity:
        yield f"the adopted disk was another disk: {mark.identity}"


def digest(inventory: Inventory, machine_id: str) -> str:
    """Return a digest of an inventory and of its server's machine-id; the mark on each disk contains this digest.

    Raises:
        RigError: the server has no /etc/machine-id, so raidproof cannot distinguish it from other machines.
    """
    if not machine_id:
        raise RigError(
            f"{inventory.server.name} has no /etc/machine-id", remedy="run systemd-machine-id-setup on the machine"
        )
    return _sha256({"inventory": inventory.model_dump(mode="json"), "machine": machine_id})


def fingerprint(inventory: Inventory, survey: Survey) -> str:
    """Return a digest of an inventory and of the identities of its disks, which the user types to confirm adoption.

    Raises:
        RigError: the server has no /etc/machine-id, so raidproof cannot distinguish it from other machines.
    """
    identities = {}
    for serial, disk in inventory.disks.items():
        facts = survey.disks.get(survey.links.get(disk.id, ""))
        identities[serial] = identity_of(disk.id, facts).model_dump(mode="json") if facts else None
    return _sha256({"inventory": digest(inventory, survey.machine_id), "disks": identities})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def writer_command(permissions: Iterable[Permission], marks: Iterable[Mark], ends: int) -> list[str]:
    """Return the command that writes marks, and zeros in the first and last ``ends`` bytes of each disk.

    The program `raidproof.guest.disk_writer` is the command's standard input. Its arguments for each disk: the
    path, the device number and the size that the gate judged, the mark that must be on the disk (``-``: none), and
    the mark to write.
    """
    words = [
        (one.path, one.number, str(one.identity.size), encode(one.mark).hex() if one.mark else "-", encode(new).hex())
        for one, new in zip(permissions, marks, strict=True)
    ]
    return ["python3", "-I", "-", str(ends), *(word for disk in words for word in disk)]


def wipe_command(permissions: Iterable[Permission]) -> list[str]:
    """Return the wipefs command that erases all signatures on disks; without --force, wipefs refuses a disk in use."""
    return ["wipefs", "--all", *(one.path for one in permissions)]


def discard_command(permission: Permission) -> list[str]:
    """Return the command that discards all bytes between a disk's marks; blkdiscard refuses a disk that is in use."""
    length = permission.identity.size // BLOCK * BLOCK - 2 * BLOCK
    return ["blkdiscard", "--offset", str(BLOCK), "--length", str(length), permission.path]


def write_marks(machine: Machine, permissions: Sequence[Permission], marks: Sequence[Mark]) -> None:
    """Write a mark on each disk, and change nothing else on the disks.

    Raises:
        RigError: a disk is no longer the disk that the gate judged, or is in use. Preceding disks have been marked.
    """
    _write(machine, writer_command(permissions, marks, 0))


def blank(machine: Machine, permissions: Sequence[Permission]) -> tuple[str, ...]:
    """Erase raidproof's data on disks, except the marks; return the paths of the disks that support discard.

    Raises:
        RigError: a disk has no mark, is no longer the disk that the gate judged, or is in use.
    """
    marks = [one.mark for one in permissions if one.mark is not None]
    if len(marks) != len(permissions):
        unmarked = ", ".join(one.path for one in permissions if one.mark is None)
        raise RigError(f"{machine.name}: refused to erase a disk without a mark of raidproof: {unmarked}")
    # First the marks, so that the gate still permits the disks if the program is interrupted.
    _write(machine, writer_command(permissions, marks, 0))
    machine.succeed(wipe_command(permissions))
    discarded = [
        one.path for one in permissions if machine.run(discard_command(one), deadline_s=DISCARD_DEADLINE_S).ok
    ]
    _write(machine, writer_command(permissions, marks, ENDS))
    return tuple(discarded)


def _write(machine: Machine, argv: list[str]) -> None:
    source = Path(writer.__file__).read_text()
    ended = machine.run(argv, stdin=source, deadline_s=WRITE_DEADLINE_S)
    if not ended.ok:
        raise RigError(f"{machine.name}: a disk has changed since raidproof checked it: {ended.stderr.strip()[-500:]}")


@dataclass(frozen=True)
class Proposal:
    """The disks of an inventory before their adoption, with the gate's decision on each. Nothing has been written."""

    inventory: Inventory
    found: Survey
    """The survey of the server's disks."""
    verdicts: tuple[Permission | Refusal, ...]
    """The gate's decision on each disk, in the order of the inventory."""
    fingerprint: str
    """The digest that the user confirms."""

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """The disks that raidproof must not use, with the reasons."""
        return tuple(verdict for verdict in self.verdicts if isinstance(verdict, Refusal))

    def lines(self) -> tuple[str, ...]:
        """Return one line for each disk: its description, and whether adoption destroys its data or is refused."""
        return tuple(
            f"refused   {verdict}"
            if isinstance(verdict, Refusal)
            else f"DESTROYED {verdict.serial} {_described(self.found.disks[verdict.number])} {verdict.path}"
            + (", adopted before" if verdict.mark else ", blank")
            for verdict in self.verdicts
        )


def propose(inventory: Inventory, server: Machine) -> Proposal:
    """Return the gate's decisions on the disks of an inventory, after a survey of the server. Write nothing.

    Raises:
        RigError: the survey of the server failed, or the server has no machine-id.
    """
    found = look(server, [disk.id for disk in inventory.disk])
    return Proposal(inventory, found, judge_all(inventory.disks, found, None), fingerprint(inventory, found))


def adopt(
    inventory: Inventory,
    server: Machine,
    *,
    show: Callable[[str], object],
    ask: Callable[[str], str] | None = None,
    yes: str | None = None,
) -> tuple[Mark, ...]:
    """Adopt the disks of an inventory: show which data will be lost, get a confirmation, write and return the marks.

    ``show`` prints a line. ``ask`` asks the user a question and returns the answer. ``yes`` is a confirmation given in
    advance: the fingerprint, or its first characters.

    Raises:
        RequestError: a disk is refused, the user does not confirm, or the disks change before the confirmation.
            Nothing has been written.
        RigError: the survey of the server failed, or a disk changed after the confirmation.
    """
    proposal = propose(inventory, server)
    show(f"{server.name} ({inventory.server.host}), machine-id {proposal.found.machine_id}")
    for line in proposal.lines():
        show(line)
    permissions = require_permitted(proposal.verdicts)
    show(f"fingerprint {proposal.fingerprint}")
    _require_confirmed(proposal.fingerprint, ask, yes)
    inventory_digest = digest(inventory, proposal.found.machine_id)
    marks = tuple(Mark(inventory=inventory_digest, serial=one.serial, identity=one.identity) for one in permissions)
    # The disks may have changed while the user was asked: judge them again, and require the confirmed fingerprint.
    again = propose(inventory, server)
    if again.fingerprint != proposal.fingerprint:
        raise RequestError(
            f"the disks of {server.name} changed before the confirmation; nothing was written",
            remedy="repeat the adoption",
        )
    write_marks(server, require_permitted(again.verdicts), marks)
    require_adopted(inventory, server)
    return marks


def require_adopted(inventory: Inventory, server: Machine) -> tuple[Permission, ...]:
    """Return the permissions for the adopted disks of an inventory, after a new survey of the server.

    Raises:
        RequestError: a disk is refused; the message contains every reason against every refused disk.
        RigError: the survey of the server failed, or the server has no machine-id.
    """
    found = look(server, [disk.id for disk in inventory.disk])
    return require_permitted(judge_all(inventory.disks, found, digest(inventory, found.machine_id)))


def _require_confirmed(asked: str, ask: Callable[[str], str] | None, yes: str | None) -> None:
    if yes is None and ask is None:
        raise RigError("the adoption of disks must be confirmed, and there is neither a terminal nor --yes")
    question = f"All data on these disks will be lost. Type the first {SHORT} characters of the fingerprint: "
    typed = (yes if yes is not None else ask(question) if ask else "").strip().lower()
    if len(typed) < SHORT or not asked.startswith(typed):
        raise RequestError(
            f"not confirmed: the fingerprint does not begin with {typed!r}; nothing was written",
            remedy=f"type at least the first {SHORT} characters of the fingerprint, or pass them as --yes",
        )


def _described(facts: DiskFacts) -> str:
    return f"{facts.model or 'unknown model'}, {format_size(facts.size)}, serial number {facts.serial or 'unknown'}:"
