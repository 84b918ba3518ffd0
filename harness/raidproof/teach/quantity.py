"""The values that actions measure, by name, and conditions on these values in lesson files."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from raidproof.core.errors import RequestError, nearest
from raidproof.record.lesson import ActionRecord
from raidproof.report.lesson import with_unit


class Meaning(NamedTuple):
    """The meaning and the unit of a measured value."""

    text: str
    unit: str = ""


CUT: Mapping[str, Meaning] = MappingProxyType(
    {
        "recovered": Meaning("whether the array could be assembled and the file system mounted (1: yes)"),
        "acknowledged": Meaning("operations that the server acknowledged before the cut"),
        "lost": Meaning("acknowledged operations that are missing after the cut"),
        "lost_seconds": Meaning("time from the earliest lost acknowledgement to the cut", "s"),
        "lost_share": Meaning("share of the acknowledged operations that are missing", "%"),
        "lost_files": Meaning("files whose names are missing"),
        "worked_seconds": Meaning("time that the clients worked before the cut", "s"),
        "acknowledged_per_s": Meaning("acknowledged operations", "1/s"),
        "fsyncs_per_s": Meaning("acknowledged writes of 4 KiB with fsync", "1/s"),
        "flushes": Meaning("FLUSH requests to all members while the clients worked"),
        "forced": Meaning("writes with FUA to all members while the clients worked"),
        "lied": Meaning("FLUSH and FUA requests that a disk acknowledged without making the data durable"),
        "at_risk": Meaning("writes that the disks had acknowledged and not made durable at the cut"),
        "broken_blocks": Meaning("damaged blocks of files, found on the server after the cut"),
        "expire_seconds": Meaning("age at which the server's kernel writes back dirty data", "s"),
        "wake_seconds": Meaning("time between two wake-ups of the server's write-back", "s"),
        "commit_seconds": Meaning("time between two flushes of the file system's log", "s"),
        "outage_seconds": Meaning("time from the server's power on to its first reply to a client", "s"),
    }
)
MEASURE: Mapping[str, Meaning] = MappingProxyType(
    {
        "call_kib": Meaning("mean size of the WRITE calls from client to server", "KiB"),
        "calls": Meaning("WRITE calls from client to server"),
        "commits": Meaning("COMMIT calls from client to server"),
        "member_reads": Meaning("bytes read from the members for each byte written to the array"),
        "member_writes": Meaning("bytes written to the members for each byte that the application wrote"),
        "timed_seconds": Meaning("duration of the timed part", "s"),
    }
)
"""Values of every workload. Each tool has values of its own, whose names end with the unit: ``write_mb_s``."""
EXPLORE: Mapping[str, Meaning] = MappingProxyType(
    {
        "judged": Meaning("crash states that were checked"),
        "distinct": Meaning("crash states with different contents of the disks"),
        "broken": Meaning("crash states in which acknowledged data is lost or damaged"),
        "differing": Meaning("crash states with rows whose parity does not match the data"),
        "differing_rows": Meaning("rows whose parity does not match the data, in the state with the most of them"),
        "unmarked": Meaning("crash states with such rows that md would not resync"),
        "cuts": Meaning("instants of the recording at which the power could be cut"),
    }
)
LOCKS: Mapping[str, Meaning] = MappingProxyType(
    {
        "refused_before": Meaning("whether the server refused the second lock before the event (1: yes)"),
        "kept": Meaning("whether the server still refused the second lock after the event (1: yes)"),
        "taken": Meaning("whether the other client got the lock after the event (1: yes)"),
        "wait_seconds": Meaning("time until the server answered the first new lock request after the event", "s"),
        "event_seconds": Meaning("duration of the event", "s"),
        "write_seconds": Meaning("time until the holder's write and fsync returned after the event", "s"),
        "holder_errors": Meaning("calls of the holder, of write and fsync, that failed after the event"),
        "grace_seconds": Meaning("grace period of the server", "s"),
        "lease_seconds": Meaning("lease time of the server", "s"),
    }
)
MEANINGS: Mapping[str, Mapping[str, Meaning]] = MappingProxyType(
    {"cut": CUT, "measure": MEASURE, "explore": EXPLORE, "locks": LOCKS}
)
"""The values of each kind of action, by the name of the kind."""
TOOLS: Mapping[str, Meaning] = MappingProxyType(
    {
        "_mb_s": Meaning("{}: amount of data in each second", "MB/s"),
        "_iops": Meaning("{}: operations in each second", "1/s"),
        "_p50_ms": Meaning("{}: median time of an operation", "ms"),
        "_p99_ms": Meaning("{}: time that 99 % of the operations do not exceed", "ms"),
        "_ms": Meaning("{}: time of an operation", "ms"),
        "_us": Meaning("{}: time of an operation", "us"),
        "_s": Meaning("{} in each second", "1/s"),
    }
)
"""Values of tools, by the ending of their names; the first ending that fits counts."""
MIDDLE = "median"
PARTS: Mapping[str, Callable[[list[float]], float]] = MappingProxyType({MIDDLE: median, "least": min, "most": max})
"""The values that several repetitions give together."""

_NAME = r"[a-z][a-z0-9-]*\.[a-z][a-z0-9_]*(?:\.[a-z]+)?"
_NUMBER = r"-?\d{1,12}(?:\.\d{1,9})?"
_TERM = re.compile(
    rf"(?:(?P<number>{_NUMBER})(?:\s*\*\s*(?P<times>{_NAME}))?|(?P<name>{_NAME}))(?:\s*/\s*(?P<by>{_NAME}))?"
)
_COMPARED = re.compile(r"(.+?)(<=|>=|=|<|>)(.+)", re.DOTALL)
PLACEHOLDER = re.compile(rf"\{{\s*({_NAME}(?:\s*/\s*{_NAME})?)\s*\}}")
"""A measured value in a text: ``{async.lost_seconds}``, or a quotient ``{a.write_mb_s / b.write_mb_s}``."""
NOT_MEASURED = "(not measured)"


def meaning_of(kind: str, name: str) -> Meaning:
    """Return the meaning of a value of a kind of action.

    Raises:
        RequestError: this kind of action has no value of this name.
    """
    known = MEANINGS[kind]
    if name in known:
        return known[name]
    if kind == "measure":
        for ending, (text, unit) in TOOLS.items():
            if name.endswith(ending):
                return Meaning(text.format(name.removesuffix(ending).replace("_", " ")), unit)
    tool = "; the values of tools end with their unit, such as write_mb_s" if kind == "measure" else ""
    raise RequestError(f"an action of kind {kind} measures no value {name!r}", remedy=nearest(name, known) + tool)


def heading_of(kind: str, name: str) -> str:
    """Return the heading of a column with a value: its name, without the unit in the name of a tool's value."""
    ending = next((one for one in TOOLS if name.endswith(one)), "") if name not in MEANINGS[kind] else ""
    return name.removesuffix(ending.removeprefix("_p50").removeprefix("_p99")).replace("_", " ")


@dataclass(frozen=True)
class Reference:
    """A measured value by its name in a lesson: ``async.lost_seconds``, ``async.lost_seconds.most``."""

    action: str
    value: str
    part: str = MIDDLE
    """Which of several repetitions: the median, the least or the greatest value."""

    @classmethod
    def read(cls, text: str) -> "Reference":
        """Return the reference that a text contains.

        Raises:
            RequestError: the last part is not one of `PARTS`.
        """
        action, value, *rest = text.strip().split(".")
        part = rest[0] if rest else MIDDLE
        if part not in PARTS:
            raise RequestError(f"{text.strip()}: unknown ending {part!r}", remedy=nearest(part, PARTS))
        return cls(action, value, part)

    def __str__(self) -> str:
        return f"{self.action}.{self.value}" + ("" if self.part == MIDDLE else f".{self.part}")

    def of(self, done: Mapping[str, ActionRecord]) -> float | None:
        """Return the value among those of the actions that are done; None if it was not measured."""
        action = done.get(self.action)
        found = action.value(self.value) if action else None
        return PARTS[self.part](found.each) if found else None


@dataclass(frozen=True)
class Term:
    """A number, a measured value, or a product or quotient: ``0.5 * async.lost``, ``a.lost / b.lost``."""

    factor: float = 1.0
    times: Reference | None = None
    by: Reference | None = None

    @classmethod
    def read(cls, text: str) -> "Term":
        """Return the term that a text contains.

        Raises:
            RequestError: the text is no term.
        """
        if (match := _TERM.fullmatch(text.strip())) is None:
            raise RequestError(
                f"not a measured value: {text.strip()!r}",
                remedy="write ACTION.VALUE, NUMBER * ACTION.VALUE, or ACTION.VALUE / ACTION.VALUE",
            )
        times, by = match["times"] or match["name"], match["by"]
        return cls(
            float(match["number"] or 1),
            Reference.read(times) if times else None,
            Reference.read(by) if by else None,
        )

    @property
    def references(self) -> tuple[Reference, ...]:
        """The measured values that the term needs."""
        return tuple(one for one in (self.times, self.by) if one is not None)

    def of(self, done: Mapping[str, ActionRecord]) -> float | None:
        """Return the value of the term; None if a value was not measured, or the divisor is 0."""
        value = self.factor
        for reference in self.references:
            found = reference.of(done)
            if found is None or (reference is self.by and found == 0):
                return None
            value = value / found if reference is self.by else value * found
        return value

    def unit(self, kinds: Mapping[str, str]) -> str:
        """Return the unit; a quotient has none. ``kinds``: the kind of each action by its name."""
        if self.times is None or self.by is not None:
            return ""
        return meaning_of(kinds[self.times.action], self.times.value).unit


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
)


@dataclass(frozen=True)
class Condition:
    """Comparisons of measured values that must all hold: ``sync.lost = 0 and async.lost > 0``."""

    text: str
    parts: tuple[tuple[Term, str, Term], ...]

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Return the condition that a text contains.

        Raises:
            RequestError: the text is no condition.
        """
        parts = []
        for one in re.split(r"\band\b", text):
            if (match := _COMPARED.fullmatch(one.strip())) is None:
                raise RequestError(
                    f"not a comparison: {one.strip()!r}", remedy="write for example async.lost_seconds > 5"
                )
            parts.append((Term.read(match[1]), match[2], Term.read(match[3])))
        return cls(text, tuple(parts))

    @property
    def references(self) -> tuple[Reference, ...]:
        """The measured values that the condition needs."""
        return tuple(one for left, _, right in self.parts for term in (left, right) for one in term.references)

    def holds(self, done: Mapping[str, ActionRecord]) -> bool | None:
        """Return whether the condition holds; None if a value was not measured."""
        for left, sign, right in self.parts:
            one, other = left.of(done), right.of(done)
            if one is None or other is None:
                return None
            if not _COMPARISONS[sign](one, other):
                return False
        return True


def placeholders(text: str) -> Iterator[Term]:
    """Yield the measured values whose names a text contains in braces."""
    for match in PLACEHOLDER.finditer(text):
        yield Term.read(match[1])


def filled(text: str, done: Mapping[str, ActionRecord]) -> str:
    """Return a text with the measured values in place of their names."""
    kinds = {name: action.do for name, action in done.items()}

    def value(match: re.Match[str]) -> str:
        term = Term.read(match[1])
        found = term.of(done)
        return NOT_MEASURED if found is None else with_unit(found, term.unit(kinds))

    return PLACEHOLDER.sub(value, text)
