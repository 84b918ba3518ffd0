"""The finding with whose crash states a failure agrees: of an exploration, or of a crash test itself."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from raidproof.record.failure import FailureRecord, WriteRecord
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


@dataclass(frozen=True)
class Shown:
    """What a failing crash state shows."""

    damage: str
    """The broken promise and the damage: ``recovery: not mounted``."""
    kernel: Sequence[str] = ()
    """Suspicious kernel messages, each preceded by the name of its sign."""
    torn: Sequence[str] = ()
    """The structures of the file system in the requests that survive in part."""
    early_barrier: bool = False
    """Whether a barrier write survives without a write that had completed before."""


def shown_by(failure: FailureRecord) -> Shown:
    """Return what the smallest state of a failure of an exploration shows."""
    survivors = failure.shrunk.survivors if failure.shrunk is not None else []
    return Shown(
        f"{failure.promise}: {failure.damage}", failure.kernel, torn_structures(survivors), failure.order is not None
    )


def finding_of(shown: Shown, tested: Software, findings: Iterable[Finding]) -> str | None:
    """Return the name of the first finding whose crash states agree with a failing state; None without one."""
    for finding in findings:
        known = tested.kernel not in finding.not_affected
        if known and any(agrees(shown, tested, one) for one in finding.crash_states):
            return finding.id
    return None


def agrees(shown: Shown, tested: Software, states: CrashStates) -> bool:
    """Return whether a failing state agrees with the crash states of a finding in all facts that restrict them.

    A fact that was not recorded does not agree.
    """
    restricted = [
        (states.filesystems, [tested.filesystem]),
        (states.levels, [tested.level]),
        (states.servers, [tested.server]),
        (states.volumes, [tested.volume]),
        (states.damages, [shown.damage]),
        (states.kernel, shown.kernel),
        (states.torn, shown.torn),
    ]
    return (
        all(not patterns or _matches(patterns, values) for patterns, values in restricted)
        and states.early_barrier in {None, shown.early_barrier}
        and numbers(tested.kernel) >= numbers(states.since)
    )


def numbers(release: str) -> tuple[int, ...]:
    """Return the numbers with which the release of a kernel begins: (6, 12, 113) for ``6.12.113-amd64``."""
    found = re.match(r"\d+(?:\.\d+)*", release)
    return tuple(map(int, found[0].split("."))) if found else ()


def torn_structures(survivors: Iterable[WriteRecord]) -> list[str]:
    """Return the structures of the requests that survive in part."""
    return [one.structure for one in survivors if one.torn and one.structure is not None]


def _matches(patterns: Sequence[str], values: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)
