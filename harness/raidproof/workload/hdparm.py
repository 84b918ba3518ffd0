"""The workload hdparm: ``-t`` reads the beginning of a device sequentially, ``-T`` reads cached data."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import State
from raidproof.core.units import KIB, MIB
from raidproof.workload.workload import Access, Place, Sample, Tool, Work, WorkloadSpec, run_limited

_TIMING = re.compile(
    r"^ ?Timing (?P<what>cached|O_DIRECT cached|buffered disk|O_DIRECT disk) reads: +(?P<mib>\d+) MB in +"
    r"(?P<seconds>\d+\.\d+) seconds = +(?P<rate>\d+(?:\.\d+)?) (?P<unit>MB|kB)/sec *$",
    re.MULTILINE,
)
_UNITS = {"MB": MIB, "kB": KIB}
"""Bytes in hdparm's units: MB is a MiB and kB a KiB, because hdparm divides by 2^20 (time_device in hdparm.c)."""
_SECONDS = {"t": 3.0, "T": 2.0, "tT": 5.0}
"""Seconds that hdparm reads, by option (hdparm(8))."""
_REQUEST = 2048 * KIB
"""Bytes of one request of ``-t``."""
_SPAN = 0.01
"""Approximate share of the device that ``-t`` reads, from its beginning, which is the fastest part of a disk."""
_BUFFER = 2 * MIB
"""Bytes that ``-T`` reads repeatedly (TIMING_BUF_MB in hdparm.c)."""


class HdparmSpec(WorkloadSpec):
    """Settings of the workload hdparm: the options of one hdparm(8) on the array or another device of the server."""

    on_files: ClassVar[bool] = False
    on_devices: ClassVar[bool] = True

    tool: Literal["hdparm"] = "hdparm"
    timing: Literal["t", "T", "tT"] = "t"
    """Options of hdparm: ``t`` drops the device's cached pages and reads the device; ``T`` reads cached data."""
    direct: bool = False
    """Use O_DIRECT, which excludes the kernel's read-ahead."""
    deadline_s: float = Field(default=120.0, gt=0)
    """Time limit of hdparm in seconds."""

    def workload(self) -> "Hdparm":
        """Return the workload that runs hdparm with these settings."""
        return Hdparm(self)

    def work(self) -> Work:
        """Return the properties of the workload's timed part that decide which caches can serve its I/O."""
        memory = self.timing == "T"
        return Work(_BUFFER if memory else None, reads=True, writes=False, direct=self.direct, once=not memory)

    def access(self, *, clients: int = 1) -> Access | None:  # noqa: ARG002
        """Return the requests of ``-t`` to the device; None for ``-T`` and ``-tT``."""
        if self.timing != "t":
            return None
        # hdparm reads for three seconds from the beginning of the device.
        return Access(size=_REQUEST, read_share=1.0, remote=False, direct=self.direct, span=_SPAN)


class Timing(State):
    """One measurement of hdparm: the bytes that it read, the time and the rate."""

    bytes: int
    seconds: float
    mb_s: float
    """Rate in 10^6 bytes/s, converted from hdparm's MiB/s."""


class HdparmState(State):
    """The measurements of one run of hdparm."""

    disk: Timing | None = None
    """Measurement of ``-t``; None if the option was not given."""
    cached: Timing | None = None
    """Measurement of ``-T``; None if the option was not given."""


def hdparm_command(spec: HdparmSpec, device: str) -> list[str]:
    """Return the hdparm command for one device."""
    return ["hdparm", f"-{spec.timing}", *(["--direct"] if spec.direct else []), device]


def parse_hdparm(text: str) -> HdparmState:
    """Return the measurements in hdparm's lines ``Timing buffered disk reads: N MB in S seconds = R MB/sec``.

    Raises:
        RigError: the output has no such line, or an incomplete line.
    """
    found = list(_TIMING.finditer(text))
    if not found or len(found) != text.count("Timing "):
        raise RigError(f"the timing is missing from hdparm's output: {text.strip()[-300:] or 'no output'}")
    return HdparmState.model_validate(
        {
            match["what"].split()[-1]: Timing(
                bytes=int(match["mib"]) * MIB,
                seconds=float(match["seconds"]),
                mb_s=float(match["rate"]) * _UNITS[match["unit"]] / 1e6,
            )
            for match in found
        }
    )


class Hdparm(Tool[HdparmSpec]):
    """Runs hdparm on the server's device."""

    programs = ("hdparm", "timeout")

    @property
    def working_set(self) -> int:
        """0: the number of bytes is not known before the run, because hdparm reads for a fixed time."""
        return 0

    @property
    def timed_s(self) -> float | None:
        """Seconds that hdparm reads, by hdparm(8); it ends earlier at the end of a small device."""
        return _SECONDS[self.spec.timing]

    def prepare(self, place: Place) -> None:
        """Check that the workload runs on a raw device. hdparm drops the device's cached pages itself.

        Raises:
            RequestError: the workload runs on clients, which have no raw device.
        """
        _device(place)

    def run(self, place: Place) -> Sample:
        """Run hdparm on the device, and return its rates.

        Raises:
            RequestError: the workload runs on clients, which have no raw device.
            RigError: hdparm failed, exceeded its deadline, or its output is malformed.
        """
        machine = place.machines[0]
        ended = run_limited(machine, hdparm_command(self.spec, _device(place)), self.spec.deadline_s)
        state = read_ended(self.spec, ended)
        timings = {"read_mb_s": state.disk, "cached_mb_s": state.cached}
        return Sample(
            primary="cached_mb_s" if self.spec.timing == "T" else "read_mb_s",
            values={name: timing.mb_s for name, timing in timings.items() if timing},
            seconds=sum(timing.seconds for timing in timings.values() if timing),
            read_bytes=state.disk.bytes if state.disk else 0,
            output={machine.name: ended.stdout},
        )

    def clean(self, place: Place) -> None:
        """Do nothing: hdparm writes no files."""


def read_ended(spec: HdparmSpec, ended: Completed) -> HdparmState:
    """Return the measurements of an ended hdparm.

    Raises:
        RigError: hdparm failed, or its output lacks a requested measurement.
    """
    # hdparm may end with status 0 and report a read error on standard error only.
    if not ended.ok or ended.stderr.strip():
        raise RigError(f"{ended.where}: hdparm ended with status {ended.status}: {ended.stderr.strip()[-300:]}")
    state = parse_hdparm(ended.stdout)
    if ("t" in spec.timing and state.disk is None) or ("T" in spec.timing and state.cached is None):
        raise RigError(f"{ended.where}: hdparm -{spec.timing} left out a timing: {ended.stdout.strip()[-300:]}")
    return state


def _device(place: Place) -> str:
    if place.device is None:
        raise RequestError("hdparm reads a raw device, and clients have none", remedy="run hdparm on the server")
    return place.device
