"""The finding with whose crash states a failure of an exploration agrees."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from raidproof.record.failure import FailureRecord
from raidproof.record.finding import CrashStates, Finding


@dataclass(frozen=True)
class Software:
    """The software that an exploration tested."""

    kernel: str
    """Release of the server's kernel; empty if not known."""
    filesystem: str
    level: str
    """Level of the array; empty if the array has none."""
    server: str
    volume: str


def finding_of(failure: FailureRecord, tested: Software, findings: Iterable[Finding]) -> str | None:
    """Return the name of the first finding whose crash states agree with a failure; None without one."""
    for finding in findings:
        known = tested.kernel not in finding.not_affected
        if known and any(agrees(failure, tested, one) for one in finding.crash_states):
            return finding.id
    return None


def agrees(failure: FailureRecord, tested: Software, states: CrashStates) -> bool:
    """Return whether a failure agrees with the crash states of a finding in all facts that restrict them.

    A fact that was not recorded does not agree.
    """
    restricted = [
        (states.filesystems, [tested.filesystem]),
        (states.levels, [tested.level]),
        (states.servers, [tested.server]),
        (states.volumes, [tested.volume]),
        (states.damages, [f"{failure.promise}: {failure.damage}"]),
        (states.kernel, failure.kernel),
        (states.torn, torn_structures(failure)),
    ]
    return (
        all(not patterns or _matches(patterns, values) for patterns, values in restricted)
        and states.early_barrier in {None, failure.order is not None}
        and numbers(tested.kernel) >= numbers(states.since)
    )


def numbers(release: str) -> tuple[int, ...]:
    """Return the numbers with which the release of a kernel begins: (6, 12, 113) for ``6.12.113-amd64``."""
    found = re.match(r"\d+(?:\.\d+)*", release)
    return tuple(map(int, found[0].split("."))) if found else ()


def torn_structures(failure: FailureRecord) -> list[str]:
    """Return the structures of the requests that survive in part in the smallest state of a failure."""
    survivors = failure.shrunk.survivors if failure.shrunk is not None else []
    return [one.structure for one in survivors if one.torn and one.structure is not None]


def _matches(patterns: Sequence[str], values: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)
