"""Adoption: the user confirms, once for an inventory, that all data on its disks may be destroyed."""

from collections.abc import Callable
from dataclasses import dataclass

from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import Machine
from raidproof.core.units import format_size
from raidproof.provider.hosts.gate import (
    SHORT,
    Permission,
    Refusal,
    digest,
    fingerprint,
    judge_all,
    require_permitted,
    write_marks,
)
from raidproof.provider.hosts.inventory import Inventory
from raidproof.provider.hosts.survey import DiskFacts, Mark, Survey, survey


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
    found = survey(server, [disk.id for disk in inventory.disk])
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
    found = survey(server, [disk.id for disk in inventory.disk])
    return require_permitted(judge_all(inventory.disks, found, digest(inventory, found.machine_id)))


def _require_confirmed(asked: str, ask: Callable[[str], str] | None, yes: str | None) -> None:
    if yes is None and ask is None:
        raise RigError("an adoption needs a confirmation by a person")
    question = f"All data on these disks will be lost. Type the first {SHORT} characters of the fingerprint: "
    said = (yes if yes is not None else ask(question) if ask else "").strip().lower()
    if len(said) < SHORT or not asked.startswith(said):
        raise RequestError(
            f"not confirmed: {said!r} is not how the fingerprint begins; nothing was written",
            remedy=f"at least {SHORT} characters of it",
        )


def _described(facts: DiskFacts) -> str:
    return f"{facts.model or 'unknown model'}, {format_size(facts.size)}, serial number {facts.serial or 'unknown'}:"
