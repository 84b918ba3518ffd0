"""A real drive: the program `raidproof.guest.drive_meter` reads it, on this host or on another machine."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.waiting import Deadline, pause
from raidproof.drive_measurement.sample import Facts, Probe, Sample
from raidproof.guest import drive_meter

METER = Path(drive_meter.__file__)
DEADLINE_S = 120.0
"""Seconds within which a probe must end; the longest one takes about 20 s at full speed."""
Run = Callable[[Sequence[str], bytes, float], Completed]
"""Runs a command with a standard input and a deadline in seconds on the machine with the drive."""


def meter_command(order: str, device: str, python: str = "python3") -> list[str]:
    """Return the command that reads a drive; ``order``: ``facts`` or ``read``."""
    return [python, "-I", "-c", METER.read_text(), order, device]


def announcement(device: str) -> list[str]:
    """Return lines with the commands that may run on the machine with the drive."""
    return [f"python3 -I -c '{METER.name}' {order} {device}" for order in ("facts", "read")]


def on_this_host(argv: Sequence[str], stdin: bytes, deadline_s: float) -> Completed:
    """Run a command on this host."""
    try:
        done = subprocess.run(list(argv), input=stdin, capture_output=True, check=False, timeout=deadline_s)
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(f"host: the drive meter still ran after {deadline_s:.0f} s") from error
    return Completed(tuple(argv), done.returncode, done.stdout.decode(), done.stderr.decode())


class RealDrive:
    """A real drive. A call executes a probe."""

    def __init__(
        self, device: str, run: Run = on_this_host, *, share: float = 1.0, deadline: Deadline | None = None
    ) -> None:
        """``share``: greatest share of the time in which reads are in progress, from more than 0 to 1."""
        self._device = device
        self._run = run
        self._share = share
        self._deadline = deadline
        self._python = sys.executable if run is on_this_host else "python3"

    def facts(self) -> tuple[Facts, bool]:
        """Return what the kernel reports about the drive, and whether the kernel knows if it rotates.

        Raises:
            RequestError: the device does not exist or cannot be read.
        """
        found = self._metered("facts", b"", DEADLINE_S)
        known = bool(found.pop("known"))
        return Facts.model_validate({"device": self._device, **found}), known

    def __call__(self, probe: Probe) -> Sample:
        """Execute a probe, and return the times of its reads.

        Raises:
            RequestError: the drive cannot be read.
            DeadlineExceeded: the time for the measurement ended meanwhile.
        """
        order = {
            "depth": probe.depth,
            "reads": [list(read) for read in probe.reads],
            "share": self._share if probe.separate else 1.0,
        }
        found = self._metered("read", json.dumps(order).encode(), DEADLINE_S / self._share)
        first = min(found["begun"])
        sample = Sample(
            probe=probe,
            begun_ns=[one - first for one in found["begun"]],
            ended_ns=[one - first for one in found["ended"]],
            processor_ns=found["processor"],
            waited_ns=found["waited"],
        )
        if not probe.separate and self._share < 1:
            rest_s = sample.duration_s * (1 / self._share - 1)
            pause(min(rest_s, self._deadline.remaining_s) if self._deadline else rest_s)
        return sample

    def _metered(self, order: str, stdin: bytes, deadline_s: float) -> dict[str, Any]:
        if self._deadline is not None:
            deadline_s = max(0.1, min(deadline_s, self._deadline.remaining_s))
        done = self._run(meter_command(order, self._device, self._python), stdin, deadline_s)
        if not done.ok:
            why = done.stderr.strip().splitlines()[-1:] or [f"status {done.status}"]
            raise RequestError(f"{done.where}: the drive cannot be measured: {why[0]}")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise RigError(
                f"{done.where}: the output of the drive meter is incomplete: {done.stdout[-200:]}"
            ) from error
        return found
