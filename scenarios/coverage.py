"""What scenarios exercise: rows of a table of kinds, and the recorder that finds the rows of each scenario.

A row is a kind of a layer, a level, a fault, a promise, a command and so on. `required` lists the rows that scenarios
must exercise end to end; `Recorder` finds those of one scenario in the records that the scenario's runs store.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raidproof.fault import FAULTS
from raidproof.provider.provider import PROVIDERS
from raidproof.record.results.names import ADVICE, COMPARISON, EXPLORATIONS, RECORD
from raidproof.storage.array.array import ARRAYS
from raidproof.storage.array.level import LEVELS
from raidproof.storage.filesystem.filesystem import FILESYSTEMS
from raidproof.storage.member.member import MEMBER_LAYERS
from raidproof.storage.server.server import SERVERS
from raidproof.storage.stack import Stack, StackSpec
from raidproof.storage.volume.volume import VOLUMES
from raidproof.verdict.contract import PROMISES

PLANTS = "plants"
"""Marker of a scenario that plants a defect which the harness must find."""


class Axis(StrEnum):
    """A column of the table: the kind of thing that a row is."""

    ARRAY = "kind of array"
    LEVEL = "level"
    MEMBER = "layer below the members"
    VOLUME = "volume"
    FILESYSTEM = "file system"
    SERVER = "server"
    NFS = "NFS version"
    FAULT = "fault"
    PROMISE = "promise"
    PROVIDER = "provider"
    EXECUTION = "execution"
    """What the harness carries out: a crash test, an exploration, a cell of a plan, and so on."""
    COMMAND = "command"
    PLANT = "planted defect"


class Execution(StrEnum):
    """What the harness carries out on machines."""

    CRASH_TEST = "crash test"
    CONTROL = "control"
    EXPLORATION = "exploration"
    SECOND_CUT = "exploration of second cuts"
    CELL = "cell of a plan"
    SUITE = "suite of another project"
    APPLICATION = "application"
    COMPARISON = "comparison"
    ADVICE = "advice"
    LESSON = "lesson"


COMMANDS = (
    *("demo", "teach", "run", "advise", "ab", "bisect", "explore", "recover", "findings", "selftest"),
    *("judge", "doctor", "hosts", "worker", "cluster", "gc", "scenarios"),
)
"""The commands that start machines or change something on a host. Unit tests cover the others completely."""


class Row(NamedTuple):
    """One thing that scenarios must exercise end to end."""

    axis: Axis
    value: str

    def __str__(self) -> str:
        return f"{self.axis}: {self.value}"

    @classmethod
    def parse(cls, text: str) -> "Row":
        """Return the row that `str` made the text of."""
        axis, _, value = text.partition(": ")
        return cls(Axis(axis), value)


def required(plants: Iterable[str]) -> list[Row]:
    """Return the table: all rows that scenarios must exercise. ``plants``: the names of the planted defects."""
    versions = {version for _, server in SERVERS.items() for version in server.versions}
    table: Mapping[Axis, Iterable[str]] = {
        Axis.ARRAY: ARRAYS,
        Axis.LEVEL: LEVELS,
        Axis.MEMBER: MEMBER_LAYERS,
        Axis.VOLUME: VOLUMES,
        Axis.FILESYSTEM: FILESYSTEMS,
        Axis.SERVER: SERVERS,
        Axis.NFS: sorted(versions),
        Axis.FAULT: (name for name, kind in FAULTS.items() if kind.__module__.startswith("raidproof.")),
        Axis.PROMISE: PROMISES,
        Axis.PROVIDER: PROVIDERS,
        Axis.EXECUTION: Execution,
        Axis.COMMAND: COMMANDS,
        Axis.PLANT: sorted(plants),
    }
    return [Row(axis, value) for axis, values in table.items() for value in values]


def rows_of_stack(asked: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a requested configuration, by layer, as records store it."""
    array, volume = asked.get("array", {}), asked.get("volume", {})
    yield Row(Axis.ARRAY, array.get("type", "md"))
    if "level" in array:
        yield Row(Axis.LEVEL, str(array["level"]))
    yield Row(Axis.MEMBER, array.get("member_layer", {}).get("type", "disk"))
    yield Row(Axis.VOLUME, volume.get("type", "direct"))
    yield Row(Axis.FILESYSTEM, asked["filesystem"]["type"])
    yield Row(Axis.SERVER, asked["export"].get("type", "knfsd"))
    yield Row(Axis.NFS, asked["mount"]["vers"])


def rows_of_crash_test(record: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of the stored record of one crash test that was carried out."""
    yield from rows_of_stack(record["asked"])
    yield Row(Axis.EXECUTION, Execution.CONTROL if record.get("control") else Execution.CRASH_TEST)
    if record.get("fault_proof"):
        yield Row(Axis.FAULT, record["fault"])
    for fault in record.get("during", []):
        yield Row(Axis.FAULT, fault["fault"])
    for verdict in record.get("verdicts", []):
        # A promise was judged if the operations that were acknowledged sufficed for PASS or FAIL.
        if verdict.get("kind") in PROMISES and verdict["outcome"] in {"PASS", "FAIL"}:
            yield Row(Axis.PROMISE, verdict["kind"])
            if verdict["kind"] == "application":
                yield Row(Axis.EXECUTION, Execution.APPLICATION)


def rows_of_exploration(record: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of the stored record of one exploration that checked states."""
    if record.get("judged"):
        yield Row(Axis.EXECUTION, Execution.EXPLORATION)
    if record.get("second_cuts"):
        yield Row(Axis.EXECUTION, Execution.SECOND_CUT)


@dataclass
class Recorder:
    """Finds the rows that one scenario after the other exercises in this process and in programs that it starts."""

    rows: set[Row] = field(default_factory=set)
    _seen: dict[tuple[Path, str, str], int] = field(default_factory=dict)
    """Of each part of a record that earlier scenarios stored, a number that grows if the part changes."""
    _begun: float = 0.0

    def begin(self) -> None:
        """Begin a scenario."""
        self.rows = set()

    def read(self, roots: Iterable[Path]) -> None:
        """Add the rows of everything new in the records below these directories."""
        for root in roots:
            for path in root.rglob(RECORD):
                self._run(path, json.loads(path.read_bytes()))
            for path in root.rglob(EXPLORATIONS):
                if self._is_new(path, Execution.EXPLORATION, "", 1):
                    self.rows.update(rows_of_exploration(json.loads(path.read_bytes())))
            for name, execution in _WHOLE_FILES.items():
                new = [path for path in root.rglob(name) if self._is_new(path, execution, "", 1)]
                if new:
                    self.rows.add(Row(Axis.EXECUTION, execution))

    def _run(self, path: Path, record: Mapping[str, Any]) -> None:
        new = False
        for one in record.get("cycles", []):
            if self._is_new(path, "crash test", one["name"], 1):
                self.rows.update(rows_of_crash_test(one))
                new = True
        for one in record.get("cells", []):
            if self._is_new(path, "cell", one["name"], len(one.get("repeats", []))):
                self.rows.update([*rows_of_stack(one["asked"]), Row(Axis.EXECUTION, Execution.CELL)])
                new = True
        for place, _ in enumerate(record.get("suites", [])):
            if self._is_new(path, "suite", str(place), 1):
                self.rows.add(Row(Axis.EXECUTION, Execution.SUITE))
                new = True
        if new and (provider := record.get("topology", {}).get("provider")):
            self.rows.add(Row(Axis.PROVIDER, provider))

    def _is_new(self, path: Path, what: str, name: str, count: int) -> bool:
        before = self._seen.get((path, what, name), 0)
        self._seen[path, what, name] = max(before, count)
        return count > before

    def online(self, spec: StackSpec) -> None:
        """Add the rows of a stack that was brought online."""
        self.rows.update(rows_of_stack(spec.model_dump(mode="json")))

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Add the command of raidproof that an audit event (`sys.addaudithook`) reports."""
        if event == "raidproof.command":
            self._command(arguments)
        elif event == "subprocess.Popen":
            words = [str(word) for word in arguments[1]] if not isinstance(arguments[1], str | bytes) else []
            for place, word in enumerate(words):
                if word.rpartition("/")[2] == "raidproof":
                    self._command(words[place + 1 :])

    def _command(self, words: Sequence[Any]) -> None:
        if words and words[0] in COMMANDS:
            self.rows.add(Row(Axis.COMMAND, str(words[0])))


_WHOLE_FILES = {COMPARISON: Execution.COMPARISON, ADVICE: Execution.ADVICE, "lesson.json": Execution.LESSON}
"""For the name of each file that is the record of one execution: this execution."""


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Let a recorder observe this process during the ``with`` block."""
    activate = Stack.activate
    ended = False

    def observed(stack: Stack) -> Any:
        state = activate(stack)
        recorder.online(stack.spec)
        return state

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not ended and event in {"raidproof.command", "subprocess.Popen"}:
            recorder.audited(event, arguments)

    sys.addaudithook(hook)  # an audit hook cannot be removed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stack, "activate", observed)
        try:
            yield
        finally:
            ended = True
