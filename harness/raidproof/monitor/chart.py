"""Time series for charts: the derived numbers of each interval between two samples."""

from collections.abc import Mapping
from itertools import pairwise

from raidproof.core.layer import State
from raidproof.monitor.monitor import derive
from raidproof.monitor.recording import Recording, Snapshot

MOST_MOMENTS = 60
"""Greatest number of intervals; of more samples, evenly spaced ones are used."""


class Moment(State):
    """The numbers of one interval between two samples. MB are 10^6 bytes. None: unknown."""

    at_s: float
    """End of the interval in seconds since the server's first sample."""
    client_mb_s: float | None
    """MB of file data per second between clients and server, reads and writes together."""
    array_mb_s: float | None
    """MB per second that the array reads and writes together."""
    member_write_mb_s: float | None
    """MB per second that all members together write."""
    member_read_mb_s: float | None
    """MB per second that all members together read."""
    busiest_member: float | None
    """Utilization of the busiest member: the fraction of the interval with requests in flight."""
    commits_s: float | None
    """COMMIT calls per second."""
    server_cpu: float | None
    """CPU utilization of the server (0 to 1)."""
    busiest_client_cpu: float | None
    """Greatest CPU utilization of a client (0 to 1)."""
    dirty: int | None
    """Dirty bytes in the server's page cache at the end of the interval."""
    writeback: int | None
    """Bytes under write-back on the server at the end of the interval."""


def moments(server: str, recordings: Mapping[str, Recording]) -> tuple[Moment, ...]:
    """Return the numbers of each interval between two samples; empty if the server was not monitored.

    The sampling of all machines begins at nearly the same time, with the same period. An interval of the server is
    therefore combined with the interval of the same index of each client.
    """
    if (seen := recordings.get(server)) is None:
        return ()
    every = -(-(len(seen.snapshots) - 1) // MOST_MOMENTS)
    recordings = {name: Recording(one.snapshots[::every], one.left_out) for name, one in recordings.items()}
    seen = recordings[server]
    begun = seen.first.at_s
    shown = []
    for number, (before, after) in enumerate(pairwise(seen.snapshots)):
        slices = {server: Recording((before, after), 0)}
        for name, other in recordings.items():
            if name != server and number + 1 < len(other.snapshots):
                slices[name] = Recording(other.snapshots[number : number + 2], 0)
        lost = dict.fromkeys(recordings.keys() - slices.keys(), "no sample in this interval")
        if (moment := _moment(server, slices, lost, after, begun)) is not None:
            shown.append(moment)
    return tuple(shown)


def _moment(
    server: str, slices: Mapping[str, Recording], lost: Mapping[str, str], after: Snapshot, begun: float
) -> Moment | None:
    derived = derive(server, slices, lost)
    if derived is None:
        return None
    seconds = derived.seconds
    members = None if derived.members is None else derived.members.values()
    wire = (derived.wire_read_bytes, derived.wire_written_bytes)
    array, memory = derived.array, after.memory

    def rate(count: float | None) -> float | None:
        return None if count is None else count / 1e6 / seconds

    return Moment(
        at_s=after.at_s - begun,
        client_mb_s=None if wire[0] is None or wire[1] is None else rate(wire[0] + wire[1]),
        array_mb_s=rate(array.read_bytes + array.written_bytes) if array else None,
        member_write_mb_s=None if members is None else rate(sum(one.written_bytes for one in members)),
        member_read_mb_s=None if members is None else rate(sum(one.read_bytes for one in members)),
        busiest_member=None if members is None else max((one.busy for one in members), default=None),
        commits_s=derived.commits.calls / seconds if derived.commits else None,
        server_cpu=derived.machines[server].cpu if server in derived.machines else None,
        busiest_client_cpu=max((one.cpu for one in derived.clients.values() if one.cpu is not None), default=None),
        dirty=memory.dirty if memory else None,
        writeback=memory.writeback if memory else None,
    )
