"""hdparm -t and -T: sequential read rate at the beginning of a device, and rate of cached reads."""

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
"""hdparm counts buffers of 2 MiB and divides by 2^20 (hdparm.c, time_device): its MB are MiB, its kB are KiB."""
_SECONDS = {"t": 3.0, "T": 2.0, "tT": 5.0}
"""Seconds that hdparm reads, by hdparm(8)."""
_REQUEST = 2048 * KIB
"""Bytes of one request of ``-t``."""
_SPAN = 0.01
"""Approximate share of the device that ``-t`` reads: the fastest part."""
_BUFFER = 2 * MIB
"""Bytes that ``-T`` reads over and over (TIMING_BUF_MB in hdparm.c)."""


class HdparmSpec(WorkloadSpec):
    """One hdparm on the array, or on the device that the place names."""

    on_files: ClassVar[bool] = False
    on_devices: ClassVar[bool] = True

    tool: Literal["hdparm"] = "hdparm"
    timing: Literal["t", "T", "tT"] = "t"
    """hdparm's options: t reads the device after a flush of its cached pages; T reads cached data (memory and CPU)."""
    direct: bool = False
    """Use O_DIRECT, thus without the kernel's read-ahead."""
    deadline_s: float = Field(default=120.0, gt=0)

    def workload(self) -> "Hdparm":
        """Return the tool with these settings, ready to run."""
        return Hdparm(self)

    def work(self) -> Work:
        """Return the requests of the timed part that matter to caches."""
        memory = self.timing == "T"
        return Work(_BUFFER if memory else None, reads=True, writes=False, direct=self.direct, once=not memory)

    def access(self, *, clients: int = 1) -> Access | None:  # noqa: ARG002
        """Return the device requests of ``-t``, on the server; None for the others."""
        if self.timing != "t":
            return None
        # Three seconds from the beginning of the device.
        return Access(size=_REQUEST, read_share=1.0, remote=False, direct=self.direct, span=_SPAN)


class Timing(State):
    """One timing of hdparm."""

    bytes: int
    seconds: float
    mb_s: float
    """10^6 bytes/s, from hdparm's MiB/s."""


class HdparmState(State):
    """What hdparm measured."""

    disk: Timing | None = None
    cached: Timing | None = None


def hdparm_command(spec: HdparmSpec, device: str) -> list[str]:
    """Return the command that times one device."""
    return ["hdparm", f"-{spec.timing}", *(["--direct"] if spec.direct else []), device]


def parse_hdparm(text: str) -> HdparmState:
    """Parse ``Timing buffered disk reads: N MB in S seconds = R MB/sec``, converted from MiB to 10^6 bytes.

    Raises:
        RigError: there is no timing line, or a line is not whole.
    """
    found = list(_TIMING.finditer(text))
    if not found or len(found) != text.count("Timing "):
        raise RigError(f"hdparm's timing is missing from: {text.strip()[-300:] or 'nothing'}")
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
        """0 (unknown before): hdparm reads as much as it can in its seconds; the sample has the amount."""
        return 0

    @property
    def timed_s(self) -> float | None:
        """Seconds by hdparm(8); less on a device that ends before."""
        return _SECONDS[self.spec.timing]

    def prepare(self, place: Place) -> None:
        """Refuse a place without a device; hdparm itself flushes the device's cached pages.

        Raises:
            RequestError: the place has no device.
        """
        _device(place)

    def run(self, place: Place) -> Sample:
        """Time the device.

        Raises:
            RequestError: the place has no device.
            RigError: hdparm failed, ran too long, or its output cannot be parsed.
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
        """Do nothing: hdparm writes nothing."""


def read_ended(spec: HdparmSpec, ended: Completed) -> HdparmState:
    """Return the result of an hdparm that ended.

    Raises:
        RigError: hdparm failed, or a requested timing is missing.
    """
    # hdparm may end with status 0 and report a read error on standard error only.
    if not ended.ok or ended.stderr.strip():
        raise RigError(f"{ended.where}: hdparm, status {ended.status}: {ended.stderr.strip()[-300:]}")
    state = parse_hdparm(ended.stdout)
    if ("t" in spec.timing and state.disk is None) or ("T" in spec.timing and state.cached is None):
        raise RigError(f"{ended.where}: hdparm left out a timing: {ended.stdout.strip()[-300:]}")
    return state


def _device(place: Place) -> str:
    if place.device is None:
        raise RequestError("hdparm reads a device, and clients have none", remedy="run it on the server")
    return place.device
