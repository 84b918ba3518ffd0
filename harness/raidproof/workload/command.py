"""The workload command: the user's own application, which acknowledges its operations; see docs/applications.md."""

import json
from math import ceil
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, State
from raidproof.guest import application as guest
from raidproof.guest import application_meter
from raidproof.guest.ledger_format import APPLICATION
from raidproof.workload.application import PROGRAM, ApplicationError, ApplicationSpec, Commands
from raidproof.workload.workload import (
    Place,
    Point,
    Sample,
    Tool,
    Work,
    WorkloadSpec,
    on_all,
    own_directory,
    require_ended_well,
    run_limited,
)

METER = "/run/raidproof/application_meter.py"
"""Path of guest/application_meter.py in a machine."""
PRIMARY = "operations_s"
START_S = 30.0
"""Seconds that the application may take until its first report, in addition to the timed part."""
PERCENTILES = (50, 95, 99)
_NAME = "raidproof-application"
"""Beginning of the names of the directories in which the application runs."""


class CommandSpec(WorkloadSpec, Commands):
    """The settings of the workload command: those of an application, and the time that it works."""

    tool: Literal["command"] = "command"
    seconds: float = Field(default=10.0, gt=0)
    """Seconds that the application works, from its first report on; its power cut is made after a time of its own."""
    seed: int = 1
    """Seed for the application."""

    def refuse_files(self) -> None:
        """Verify that the files can be read.

        Raises:
            RequestError: a file cannot be read, two files have the same name, or the files are too large.
        """
        self.application("clients").content()

    def application(self, on: str) -> ApplicationSpec:
        """Return the application, for power cuts; ``on``: where a cell runs it, ``clients`` or ``server``."""
        own = self.model_dump(include=set(Commands.model_fields))
        return ApplicationSpec.model_validate({**own, "on": on})

    def workload(self) -> "Command":
        """Return the workload that runs the application with these settings."""
        return Command(self)

    def work(self) -> Work:
        """Return the properties of the timed part: an application promises that each operation is durable."""
        return Work(None, reads=False, writes=True, durable="each", closes=True, everywhere=self.all_machines)


class MeterState(State):
    """The result of the meter on one machine."""

    seconds: float
    """Seconds from the first report to the last acknowledgement."""
    acknowledged_us: tuple[int, ...]
    """Each acknowledgement, in microseconds since the first report."""
    latency_us: tuple[int, ...]
    """Time of each acknowledged operation from its begin to its acknowledgement."""


def parse_meter(text: str) -> MeterState:
    """Return the result in the meter's output.

    Raises:
        RigError: the output is truncated or malformed.
        ApplicationError: the run command acknowledged no operation.
    """
    try:
        state = MeterState.model_validate_json(text)
    except ValidationError as error:
        raise RigError(f"the output of the application meter is malformed: {text[-300:]!r}") from error
    if not state.acknowledged_us or not state.seconds:
        raise ApplicationError("the application acknowledged no operation in the timed part")
    return state


def percentile(ordered: list[int], share: float) -> int:
    """Return the smallest value that is not exceeded by this share of the values; ``ordered``: ascending."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def meter_sample(states: dict[str, MeterState], output: dict[str, str]) -> Sample:
    """Return the sum of the machines' rates, the percentiles of all latencies, and the rate in each second."""
    latencies = sorted(one for state in states.values() for one in state.latency_us)
    values = {PRIMARY: sum(len(state.acknowledged_us) / state.seconds for state in states.values())}
    values |= {f"latency_p{one}_ms": percentile(latencies, one / 100) / 1000 for one in PERCENTILES}
    values["latency_max_ms"] = latencies[-1] / 1000
    seconds = max(state.seconds for state in states.values())
    counts = [0] * int(seconds)
    for at_us in (at for state in states.values() for at in state.acknowledged_us):
        if (second := at_us // 1_000_000) < len(counts):
            counts[second] += 1
    series = tuple(Point(at_s=second + 1.0, value=float(count)) for second, count in enumerate(counts))
    return Sample(primary=PRIMARY, values=values, seconds=seconds, series=series, output=output)


class Command(Tool[CommandSpec]):
    """Runs the application on the first of the workload's machines, or on all of them at the same time."""

    programs = ("python3", "timeout")

    @property
    def working_set(self) -> int:
        """0: the number of bytes is not known."""
        return 0

    @property
    def timed_s(self) -> float:
        """Seconds that the application works."""
        return self.spec.seconds

    def prepare(self, place: Place) -> None:
        """Remove the data of an earlier run, and run the prepare command; nothing runs the check command.

        Raises:
            ApplicationError: the prepare command failed.
        """
        self.clean(place)
        on_all(self._machines(place), lambda machine: self._meter(machine, place, "prepare", self.spec.prepare_s))

    def run(self, place: Place) -> Sample:
        """Run the application, and return its rate and its latencies.

        Raises:
            ApplicationError: the application failed, or acknowledged nothing.
        """
        limit_s = START_S + self.spec.seconds + self.spec.stop_s
        output = on_all(self._machines(place), lambda machine: self._meter(machine, place, "run", limit_s))
        return meter_sample({name: parse_meter(text) for name, text in output.items()}, output)

    def clean(self, place: Place) -> None:
        """Remove the application's directory on each machine."""
        for machine in self._machines(place):
            machine.succeed(["rm", "-rf", own_directory(machine, place.directory, _NAME)])

    def _meter(self, machine: Machine, place: Place, step: str, limit_s: float) -> str:
        machines = self._machines(place)
        spec = self.spec.application("clients")
        config = {
            "step": step,
            "seed": self.spec.seed,
            "seconds": self.spec.seconds,
            "directory": own_directory(machine, place.directory, _NAME),
            "worker": {"number": [one.name for one in machines].index(machine.name), "kind": APPLICATION},
            "application": spec.config(spec.content()),
        }
        machine.put(Path(guest.__file__).read_text(), PROGRAM)
        machine.put(Path(application_meter.__file__).read_text(), METER)
        machine.put(json.dumps(config), f"{METER}.json")
        ended = run_limited(machine, ["python3", METER, f"{METER}.json"], limit_s + START_S)
        try:
            return require_ended_well(ended, "the application")
        except RigError as error:
            raise ApplicationError(str(error)) from error

    def _machines(self, place: Place) -> list[Machine]:
        return list(place.machines if self.spec.all_machines else place.machines[:1])
