"""Records the metadata of the member disks in a crash test, and the faults that stay in effect while clients work."""

from dataclasses import asdict, dataclass

from raidproof.core.waiting import Deadline, now_ns
from raidproof.fault import Fault, FaultContext
from raidproof.machine.kernel_log import Moment, moment, said_until_off
from raidproof.machine.machine import Machine
from raidproof.record.observation import ArraySeen, AssemblySeen, MembersSeen
from raidproof.record.run import CrashTestRecord, FaultRecord
from raidproof.storage.array import Array, serial_of
from raidproof.storage.array.array import Scrub


@dataclass
class Lasting:
    """A fault that stays in effect."""

    fault: Fault
    entry: FaultRecord
    server: Machine
    """The server at its beginning; after a takeover another one serves."""
    begun: Moment
    """The position in this server's kernel log at its beginning."""
    until: Deadline | None
    """When it is to be healed; None: when the clients have finished."""
    proved: bool = False
    """Whether it was proved at a cut that the fault lasted until then."""


def injected(fault: Fault, context: FaultContext) -> FaultRecord:
    """Inject a fault; return its record."""
    begun_ns = now_ns()
    event = fault.inject(context)
    return FaultRecord(
        fault=event.fault,
        target=event.target,
        proof=event.proof,
        effects=fault.effects(context.stack.spec),
        begun_ns=begun_ns,
        at_ns=event.at_ns,
        ended_ns=now_ns(),
        disks={cut.serial: asdict(cut) for cut in event.cut_results},
    )


class MemberWatch:
    """Records the metadata of the member disks, and the faults that stay in effect while clients work."""

    def __init__(self, context: FaultContext, record: CrashTestRecord) -> None:
        self.context = context
        self.record = record
        self.seen = MembersSeen()
        self._lasting: list[Lasting] = []
        self._renewed_before = frozenset[str]()
        """Disks whose metadata was rewritten before the metadata was recorded for the first time."""

    def begin(self, fault: Fault, lasts_s: float | None = None) -> None:
        """Inject a fault that stays in effect for ``lasts_s`` seconds, or, for None, until `heal`."""
        server = self.context.lab.server
        begun = moment(server)
        entry = injected(fault, self.context)
        self.record.during.append(entry)
        until = None if lasts_s is None else Deadline.after(lasts_s)
        self._lasting.append(Lasting(fault, entry, server, begun, until))

    def start(self) -> None:
        """Record every disk's metadata before the clients begin."""
        self.record.observed.members = self.seen
        self.seen.start = self._array.identities(online=True)
        self._renewed_before = self._array.expected_deviation.renewed

    def before_assembly(self) -> None:
        """Record the disks' metadata after a fault of the server, and verify that lasting faults lasted until then.

        Raises:
            RigError: a fault had ended before.
        """
        if self.seen.before is not None:
            last = {name: getattr(self.seen, name) for name in AssemblySeen.model_fields}
            self.seen.earlier.append(AssemblySeen(**last))
            self.seen.active = None
        expected = self._array.expected_deviation
        members = self.seen.before = self._array.identities(online=False)
        self.seen.bitmaps = self._array.bitmaps()
        self.seen.absent = sorted(expected.absent)
        self.seen.replaced = sorted(expected.renewed - self._renewed_before)
        for one in self._lasting:
            if not one.proved:
                kernel_log = said_until_off(one.server, one.begun)
                one.entry.lasted = one.fault.lasted(self.context, members, kernel_log)
                one.proved = True

    def after_assembly(self) -> None:
        """Record the members that md uses after the assembly, before any rebuild."""
        found = [member for md in self._array.state().devices for member in md.members]
        self.seen.active = [serial_of(member.device) for member in found if "in_sync" in member.state]

    @property
    def next_due(self) -> Deadline | None:
        """When the next fault is to be healed; None if all faults in effect last until `heal`."""
        due = (one.until for one in self._lasting if one.until is not None)
        return min(due, key=lambda one: one.at_ns, default=None)

    def heal_due(self) -> None:
        """Heal the faults whose duration has ended, in the order of their injection."""
        for one in [one for one in self._lasting if one.until is not None and one.until.passed]:
            self._heal(one)

    def heal(self) -> None:
        """Heal the faults that stay in effect, the last one first."""
        for one in reversed([*self._lasting]):
            self._heal(one)

    def _heal(self, one: Lasting) -> None:
        self._lasting.remove(one)
        one.fault.heal(self.context)
        one.entry.healed_ns = now_ns()

    def end(self, scrubbed: Scrub) -> ArraySeen:
        """Record every disk's metadata at the end; return the scrub's results, missing members and bad blocks."""
        devices = self._array.state().devices
        self.seen.end = self._array.identities(online=True)
        self.seen.renewed = sorted(self._array.expected_deviation.renewed)
        return ArraySeen(
            **scrubbed.model_dump(),
            degraded={one.device: one.degraded for one in devices if one.degraded},
            bad_blocks={
                serial_of(member.device): member.bad_blocks
                for one in devices
                for member in one.members
                if member.bad_blocks
            },
        )

    @property
    def _array(self) -> Array:
        return self.context.stack.array
