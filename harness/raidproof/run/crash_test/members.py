"""What the disks themselves say of the array, from before a fault to the end."""

from collections.abc import Mapping

from raidproof.fault import Fault, FaultContext
from raidproof.fault.array import Lasting
from raidproof.fault.fault import FaultEvent
from raidproof.machine.kernel_log import Moment, moment, said_until_off
from raidproof.record.run import CycleRecord
from raidproof.storage.array import Array, Identity, serial_of


class MemberWatch:
    """Notes in a record which disk belonged where, and what was wrong with the array from before the clients began."""

    def __init__(self, context: FaultContext, record: CycleRecord) -> None:
        self.context = context
        self.record = record
        self._conditions: list[tuple[Fault, Moment]] = []
        """What is wrong, and where in the server's kernel log it began."""

    def begin(self, condition: Fault) -> None:
        """Let something be wrong from now on."""
        begun = moment(self.context.lab.server)
        self.record.during.append(said_of(condition.inject(self.context)))
        self._conditions.append((condition, begun))

    def start(self) -> None:
        """Note what every disk says before the fault."""
        self.record.checks["members"] = {}
        self._look("start", online=True)

    def before_assembly(self) -> None:
        """Note what the disks say after the fault, and make sure that what had to be wrong still was when it came.

        Raises:
            RigError: something had ended before the fault.
        """
        members = self._look("before", online=False)
        bitmaps = self._array.bitmaps()
        self.record.checks["members"] |= {
            "bitmaps": {serial: one.model_dump() for serial, one in bitmaps.items()},
            "absent": sorted(self._array.expected_deviation.absent),
        }
        for number, (condition, begun) in enumerate(self._conditions):
            if isinstance(condition, Lasting):
                said = said_until_off(self.context.lab.server, begun)
                self.record.during[number]["lasted"] = condition.lasted(self.context, members, said)

    def after_assembly(self) -> None:
        """Note which members md works with, before anything could be rebuilt."""
        found = [member for md in self._array.state().devices for member in md.members]
        active = [serial_of(member.device) for member in found if "in_sync" in member.state]
        self.record.checks["members"]["active"] = active

    def heal(self) -> None:
        """Put right what was wrong, the last first."""
        for condition, _ in reversed(self._conditions):
            condition.heal(self.context)

    def end(self) -> None:
        """Note what every disk says at the end, and what md knows that it cannot read."""
        devices = self._array.state().devices
        self.record.checks["array"] |= {
            "degraded": {one.device: one.degraded for one in devices if one.degraded},
            "bad_blocks": {
                serial_of(member.device): member.bad_blocks
                for one in devices
                for member in one.members
                if member.bad_blocks
            },
        }
        self._look("end", online=True)
        self.record.checks["members"]["renewed"] = sorted(self._array.expected_deviation.renewed)

    @property
    def _array(self) -> Array:
        return self.context.stack.array

    def _look(self, when: str, *, online: bool) -> Mapping[str, Identity]:
        """Note what each disk says of the array that it belongs to."""
        found = self._array.identities(online=online)
        self.record.checks["members"][when] = {serial: one.model_dump() for serial, one in found.items()}
        return found


def said_of(injected: FaultEvent) -> dict[str, str]:
    """Return what a record says of a condition."""
    return {"fault": injected.fault, "target": injected.target, "proof": injected.proof}
