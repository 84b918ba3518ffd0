"""Records the metadata of the member disks in a crash test, and the faults that last from before the clients' work."""

from raidproof.fault import Fault, FaultContext
from raidproof.machine.kernel_log import Moment, moment, said_until_off
from raidproof.record.observation import ArraySeen, MembersSeen
from raidproof.record.run import CrashTestRecord, FaultRecord
from raidproof.storage.array import Array, serial_of
from raidproof.storage.array.array import Scrub


class MemberWatch:
    """Records the metadata of the member disks, and the faults that last from before the clients' work."""

    def __init__(self, context: FaultContext, record: CrashTestRecord) -> None:
        self.context = context
        self.record = record
        self.seen = MembersSeen()
        self._conditions: list[tuple[Fault, Moment]] = []
        """The faults in effect, each with the position in the server's kernel log at its beginning."""

    def begin(self, condition: Fault) -> None:
        """Inject a fault that stays in effect until `heal`."""
        begun = moment(self.context.lab.server)
        self.record.during.append(self._injected(condition))
        self._conditions.append((condition, begun))

    def start(self) -> None:
        """Record every disk's metadata before the main fault."""
        self.record.observed.members = self.seen
        self.seen.start = self._array.identities(online=True)

    def before_assembly(self) -> None:
        """Record the disks' metadata after the main fault, and verify that earlier faults lasted until then.

        Raises:
            RigError: an earlier fault had ended before the main fault.
        """
        members = self.seen.before = self._array.identities(online=False)
        self.seen.bitmaps = self._array.bitmaps()
        self.seen.absent = sorted(self._array.expected_deviation.absent)
        for number, (condition, begun) in enumerate(self._conditions):
            kernel_log = said_until_off(self.context.lab.server, begun)
            self.record.during[number].lasted = condition.lasted(self.context, members, kernel_log)

    def after_assembly(self) -> None:
        """Record the members that md uses after the assembly, before any rebuild."""
        found = [member for md in self._array.state().devices for member in md.members]
        self.seen.active = [serial_of(member.device) for member in found if "in_sync" in member.state]

    def heal(self) -> None:
        """Heal the faults that stay in effect, the last one first."""
        for condition, _ in reversed(self._conditions):
            condition.heal(self.context)

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

    def _injected(self, condition: Fault) -> FaultRecord:
        injected = condition.inject(self.context)
        return FaultRecord(
            fault=injected.fault,
            target=injected.target,
            proof=injected.proof,
            effects=condition.effects(self.context.stack.spec),
        )

    @property
    def _array(self) -> Array:
        return self.context.stack.array
