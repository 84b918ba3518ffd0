"""The gate: no disk of an existing machine is written to without a permission that a person has confirmed.

The confirmation, once for an inventory, that all data on its disks may be destroyed is called adoption.
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
"""Least bytes of a disk: both ends, which are blanked, and some space between."""
_SYSTEM = frozenset({"/", "/boot", "/boot/efi", "/efi", "/usr", "/var", "/home"})
_KEY = object()

SHORT = 8
"""Characters of a fingerprint that a person must type."""
ENDS = 8 * MIB
"""Bytes that are zeroed at each end; every superblock of md, of a log and of a journal lies within."""
DISCARD_DEADLINE_S = 600.0
WRITE_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Refusal:
    """A disk must not be touched; with all reasons."""

    serial: str
    path: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.serial} {self.path}: {'; '.join(self.reasons)}"


class Permission:
    """One disk may be overwritten. Only the gate creates permissions, and every writer requires one."""

    def __init__(
        self, key: object, *, serial: str, path: str, number: str, identity: Identity, mark: Mark | None
    ) -> None:
        if key is not _KEY:
            raise TypeError("only the gate gives permissions")
        self.serial = serial
        self.path = path
        """Path in /dev/disk/by-id."""
        self.number = number
        """Major and minor number of the device that was judged; a writer verifies that the path still leads to it."""
        self.identity = identity
        self.mark = mark
        """The mark that was found on the disk, and that must still be there."""


def identity_of(path: str, facts: DiskFacts) -> Identity:
    """Return the identity of the disk behind a path."""
    return Identity(id=path, size=facts.size, model=facts.model, serial=facts.serial, wwn=facts.wwn)


def judge(serial: str, disks: Mapping[str, MemberDisk], survey: Survey, inventory: str | None) -> Permission | Refusal:
    """Decide whether a disk may be overwritten.

    ``inventory`` is the digest of the confirmed inventory, whose mark the disk must carry. None requests an adoption:
    the disk must be blank, or adopted before.
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
        reasons.append(f"not all of the machine could be found out: {', '.join(survey.unknown)}")
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
    """Judge every disk of an inventory."""
    return tuple(judge(serial, disks, survey, inventory) for serial in disks)


def require_permitted(verdicts: tuple[Permission | Refusal, ...]) -> tuple[Permission, ...]:
    """Return the permissions, if every disk has one: an inventory is used as a whole or not at all.

    Raises:
        RequestError: a disk is refused; the message has every reason of every refused disk.
    """
    if refused := [verdict for verdict in verdicts if isinstance(verdict, Refusal)]:
        raise RequestError(
            "\n".join([f"refused, nothing was written: {len(refused)} of {len(verdicts)} disks", *map(str, refused)])
        )
    return tuple(verdict for verdict in verdicts if isinstance(verdict, Permission))


def _of_name(disk: MemberDisk, survey: Survey, facts: DiskFacts | None) -> Iterator[str]:
    if unstable := why_unstable(disk.id):
        yield f"not named by id: {unstable}"
    if disk.id in survey.dangling:
        yield f"missing: {disk.id} leads to no disk"
    elif disk.id not in survey.links:
        yield f"missing: nothing is called {disk.id} on {survey.machine}"
    elif facts is None:
        yield f"device {survey.links[disk.id]} was not found among the machine's disks"


def _of_device(disk: MemberDisk, facts: DiskFacts) -> Iterator[str]:
    if facts.kind != "disk":
        yield f"is no whole disk: {facts.kind}"
    if facts.read_only:
        yield "read-only"
    if facts.size < SMALLEST:
        yield f"{facts.size} bytes is too small: at least {format_size(SMALLEST)}"
    if disk.size is not None and disk.size != facts.size:
        yield f"has {format_size(facts.size)}, not the {format_size(disk.size)} of the inventory"
    if facts.unknown:
        yield f"not all of it could be found out: {', '.join(facts.unknown)}"


def _of_twins(serial: str, disks: Mapping[str, MemberDisk], survey: Survey, facts: DiskFacts) -> Iterator[str]:
    for other, disk in disks.items():
        if other != serial and survey.links.get(disk.id) == facts.number:
            yield f"the same disk as {other}, {disk.id}"
    for found in survey.disks.values():
        # A disk with two paths has two devices: a user of one of them is not visible at the other.
        if found.number != facts.number and found.kind == "disk" and facts.wwn and found.wwn == facts.wwn:
            yield f"{found.name} is the same disk, by another path: both have the WWN {facts.wwn}"


def _of_use(facts: DiskFacts) -> Iterator[str]:
    if system := sorted(_SYSTEM.intersection(facts.mounts)):
        yield f"the system runs from it: {', '.join(system)}"
    if facts.mounts:
        yield f"mounted on {', '.join(facts.mounts)}"
    if facts.swaps:
        yield f"used as swap: {', '.join(facts.swaps)}"
    if facts.holders:
        yield f"in use by {', '.join(facts.holders)}"
    if facts.openers:
        yield f"open in {', '.join(facts.openers)}"
    if facts.claimed:
        yield "the kernel does not give it exclusively: something uses it"


def _of_content(facts: DiskFacts) -> Iterator[str]:
    if facts.partitions:
        yield f"has partitions: {', '.join(facts.partitions)}"
    for signature in facts.signatures:
        if not signature.owned:
            yield f"carries {signature}, which is not ours"


def _of_blank(facts: DiskFacts, identity: Identity) -> Iterator[str]:
    if facts.mark is not None and facts.mark.identity == identity and not list(_of_head(facts)):
        return
    if facts.mark is not None and facts.mark.identity != identity:
        yield f"carries the mark of another disk, {facts.mark.identity}"
    for signature in facts.signatures:
        if signature.owned:
            yield f"carries {signature}, and not our mark"
    if not facts.blank:
        # Encrypted or raw data has no signature, and may be valuable.
        yield "its first or last MiB is not zero, so it may hold data: zero both if the data is not needed"


def _of_head(facts: DiskFacts) -> Iterator[str]:
    # A log or journal of raidproof begins at byte 0. Anything else there means that another program uses the disk.
    if not facts.first_mark and not any(one.owned and one.kind != "linux_raid_member" for one in facts.signatures):
        yield "the mark at its beginning was overwritten, and not by raidproof: another program uses the disk"


def _of_mark(serial: str, facts: DiskFacts, identity: Identity, inventory: str) -> Iterator[str]:
    mark = facts.mark
    if mark is None:
        yield "not adopted: it carries no mark of ours; raidproof hosts adopt asks for it"
        return
    yield from _of_head(facts)
    if mark.inventory != inventory:
        yield "adopted by another inventory, or this one was changed since: adopt it again"
    if mark.serial != serial:
        yield f"adopted as {mark.serial}: the inventory's disks were put in another order"
    if mark.identity != identity:
        yield f"what was adopted was another disk: {mark.identity}"


def digest(inventory: Inventory, machine_id: str) -> str:
    """Return the digest of an inventory and its server, which each mark contains.

    Raises:
        RigError: the server has no /etc/machine-id, so it cannot be distinguished from others.
    """
    if not machine_id:
        raise RigError(f"{inventory.server.name} has no /etc/machine-id", remedy="systemd-machine-id-setup makes one")
    return _sha256({"inventory": inventory.model_dump(mode="json"), "machine": machine_id})


def fingerprint(inventory: Inventory, survey: Survey) -> str:
    """Return the digest of an inventory and of the identities of its disks, which a person confirms.

    Raises:
        RigError: as `digest`.
    """
    identities = {}
    for serial, disk in inventory.disks.items():
        facts = survey.disks.get(survey.links.get(disk.id, ""))
        identities[serial] = identity_of(disk.id, facts).model_dump(mode="json") if facts else None
    return _sha256({"inventory": digest(inventory, survey.machine_id), "disks": identities})


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def writer_command(permissions: Iterable[Permission], marks: Iterable[Mark], ends: int) -> list[str]:
    """Return the command that writes marks, and zeros next to them; the program is its standard input.

    The arguments for each disk: path, device number and size as judged, the mark that must be on the disk, and the
    mark to write.
    """
    words = [
        (one.path, one.number, str(one.identity.size), encode(one.mark).hex() if one.mark else "-", encode(new).hex())
        for one, new in zip(permissions, marks, strict=True)
    ]
    return ["python3", "-I", "-", str(ends), *(word for disk in words for word in disk)]


def wipe_command(permissions: Iterable[Permission]) -> list[str]:
    """Return the command that erases every signature; without --force it refuses a disk that is in use."""
    return ["wipefs", "--all", *(one.path for one in permissions)]


def discard_command(permission: Permission) -> list[str]:
    """Return the command that discards all between a disk's marks; without --force it refuses a disk in use."""
    length = permission.identity.size // BLOCK * BLOCK - 2 * BLOCK
    return ["blkdiscard", "--offset", str(BLOCK), "--length", str(length), permission.path]


def write_marks(machine: Machine, permissions: Sequence[Permission], marks: Sequence[Mark]) -> None:
    """Mark disks as raidproof's, and change nothing else on them.

    Raises:
        RigError: one of them is no longer the disk that was judged, or is in use. The disks before it are marked.
    """
    _write(machine, writer_command(permissions, marks, 0))


def blank(machine: Machine, permissions: Sequence[Permission]) -> tuple[str, ...]:
    """Erase raidproof's data; keep the marks. Return the paths that could be discarded.

    Raises:
        RigError: a disk is no longer the disk that was judged, or is in use.
    """
    marks = [one.mark for one in permissions if one.mark is not None]
    if len(marks) != len(permissions):
        raise RigError(f"{machine.name}: a disk without a mark would be blanked")
    # The marks first: after an interruption the disks are still recognised as raidproof's.
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
        raise RigError(f"{machine.name}: a disk has changed since it was checked: {ended.stderr.strip()[-500:]}")


@dataclass(frozen=True)
class Proposal:
    """The disks that an adoption would take, and the objections. Nothing has been written."""

    inventory: Inventory
    found: Survey
    verdicts: tuple[Permission | Refusal, ...]
    fingerprint: str

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """The disks that must not be touched."""
        return tuple(verdict for verdict in self.verdicts if isinstance(verdict, Refusal))

    def lines(self) -> tuple[str, ...]:
        """Return a line for each disk with its description and what happens to it."""
        return tuple(
            f"refused   {verdict}"
            if isinstance(verdict, Refusal)
            else f"DESTROYED {verdict.serial} {_described(self.found.disks[verdict.number])} {verdict.path}"
            + (", adopted before" if verdict.mark else ", blank")
            for verdict in self.verdicts
        )


def propose(inventory: Inventory, server: Machine) -> Proposal:
    """Survey the disks of an inventory and judge them. Write nothing.

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
    """Show what will be destroyed, get a confirmation, and mark the disks. Return the marks.

    ``ask`` puts a question to a person and returns the answer; ``yes`` is the fingerprint, or its beginning, given in
    advance.

    Raises:
        RequestError: a disk is refused, or there was no confirmation. Nothing was written.
        RigError: the survey of the server failed, or a disk changed meanwhile.
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
    # The disks may have changed before the confirmation: judge them again, and require the confirmed fingerprint.
    again = propose(inventory, server)
    if again.fingerprint != proposal.fingerprint:
        raise RequestError("the disks changed while they were being confirmed; nothing was written")
    write_marks(server, require_permitted(again.verdicts), marks)
    require_adopted(inventory, server)
    return marks


def require_adopted(inventory: Inventory, server: Machine) -> tuple[Permission, ...]:
    """Survey the disks again, and return the permissions to use them.

    Raises:
        RequestError: one of them may not be used; the message has every reason of every such disk.
        RigError: the survey of the server failed.
    """
    found = look(server, [disk.id for disk in inventory.disk])
    return require_permitted(judge_all(inventory.disks, found, digest(inventory, found.machine_id)))


def _require_confirmed(asked: str, ask: Callable[[str], str] | None, yes: str | None) -> None:
    if yes is None and ask is None:
        raise RigError("the adoption of disks must be confirmed")
    question = f"All data on these disks will be lost. Type the first {SHORT} characters of the fingerprint: "
    said = (yes if yes is not None else ask(question) if ask else "").strip().lower()
    if len(said) < SHORT or not asked.startswith(said):
        raise RequestError(
            f"not confirmed: {said!r} is not how the fingerprint begins; nothing was written",
            remedy=f"at least {SHORT} characters of it",
        )


def _described(facts: DiskFacts) -> str:
    return f"{facts.model or 'unknown model'}, {format_size(facts.size)}, serial number {facts.serial or 'unknown'}:"
