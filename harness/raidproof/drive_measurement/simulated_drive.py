"""A simulated drive that executes probes in virtual time: the disk engine's timing of a profile, without a machine."""

from raidproof.disk.profile import Profile
from raidproof.disk.timing.hardware import Hardware
from raidproof.disk.timing.request import Op, Request
from raidproof.disk.timing.rotational import Placement
from raidproof.drive_measurement.sample import Probe, Sample


class SimulatedDrive:
    """A simulated drive. A call executes a probe; the state of the drive remains for the next probe."""

    def __init__(self, profile: Profile, size: int | None = None) -> None:
        self._hardware = Hardware([(profile, size or profile.capacity, Placement.SPREAD, None)])
        self._now = 0

    def __call__(self, probe: Probe) -> Sample:
        """Execute a probe, and return the times of its reads."""
        begun = [0] * len(probe.reads)
        ended = [0] * len(probe.reads)
        waiting, under_way = iter(enumerate(probe.reads)), 0
        while True:
            while under_way < probe.depth and (upcoming := next(waiting, None)) is not None:
                number, read = upcoming
                self._now += read.pause_us * 1000
                self._hardware.submit(Request(Op.READ, read.offset, read.length, tag=number), self._now)
                begun[number] = self._now
                under_way += 1
            if not under_way:
                break
            event = self._hardware.next_ns
            assert event is not None  # noqa: S101  each read is answered
            self._now = event
            for request in self._hardware.advance(event):
                assert isinstance(request.tag, int)  # noqa: S101  its number
                ended[request.tag] = event
                under_way -= 1
        first = begun[0]
        return Sample(probe=probe, begun_ns=[one - first for one in begun], ended_ns=[one - first for one in ended])
