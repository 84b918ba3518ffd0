"""hdparm: how fast a device reads from its beginning, and how fast memory answers, by hdparm -t and -T."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.layer import State
from raidproof.core.units import KIB, MIB
from raidproof.workload.machines import run_limited
from raidproof.workload.workload import Access, Place, Sample, Work, WorkloadSpec

_TIMING = re.compile(
    r"^ ?Timing (?P<what>cached|O_DIRECT cached|buffered disk|O_DIRECT disk) reads: +(?P<mib>\d+) MB in +"
    r"(?P<seconds>\d+\.\d+) seconds = +(?P<rate>\d+(?:\.\d+)?) (?P<unit>MB|kB)/sec *$",
    re.MULTILINE,
)
_UNITS = {"MB": MIB, "kB": KIB}
"""hdparm counts buffers of 2 MiB and divides by 2^20 (hdparm.c, time_device): its MB are MiB, its kB are KiB."""
_SECONDS = {"t": 3.0, "T": 2.0, "tT": 5.0}
"""How long hdparm reads, by hdparm(8)."""
_REQUEST = 2048 * KIB
"""Bytes that ``-t`` asks for at a time."""
_SPAN = 0.01
"""Share of the device that ``-t`` reads, about: the fastest part."""
_BUFFER = 2 * MIB
"""Bytes that ``-T`` reads over and over (TIMING_BUF_MB in hdparm.c)."""


class HdparmSpec(WorkloadSpec):
    """One hdparm on the array, or on the one device that the place names."""

    on_files: ClassVar[bool] = False
    on_devices: ClassVar[bool] = True

    tool: Literal["hdparm"] = "hdparm"
    timing: Literal["t", "T", "tT"] = "t"
    """Its own words: t reads the device, having flushed its cached pages; T reads what is cached: memory and CPU."""
    direct: bool = False
    """Past the page cache (O_DIRECT), thus without the kernel's read-ahead."""
    deadline_s: float = Field(default=120.0, gt=0)

    def workload(self) -> "Hdparm":
        """Return the tool with these settings, ready to run."""
        return Hdparm(self)

    def work(self) -> Work:
        """Return what the timed part does, as far as caches care."""
        memory = self.timing == "T"
        return Work(_BUFFER if memory else None, reads=True, writes=False, direct=self.direct, once=not memory)

    def access(self, *, clients: int = 1) -> Access | None:  # noqa: ARG002
        """Return what ``-t`` asks of the device, on the server; None for the others."""
        if self.timing != "t":
            return None
        # Three seconds from the device's beginning on.
        return Access(size=_REQUEST, read_share=1.0, remote=False, direct=self.direct, span=_SPAN)


class Timing(State):
    """One of hdparm's timings."""

    bytes: int
    seconds: float
    mb_s: float
    """Megabytes (10^6 bytes) a second, from hdparm's MiB/s."""


class HdparmState(State):
    """What hdparm measured."""

    disk: Timing | None = None
    cached: Timing | None = None


def hdparm_command(spec: HdparmSpec, device: str) -> list[str]:
    """Return the command that times one device."""
    return ["hdparm", f"-{spec.timing}", *(["--direct"] if spec.direct else []), device]


def parse_hdparm(text: str) -> HdparmState:
    """Read ``Timing buffered disk reads: N MB in S seconds = R MB/sec``, converted from MiB to 10^6 bytes.

    Raises:
        RigError: there is no whole timing line, or a line that begins is not whole.
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


class Hdparm:
    """hdparm on the server's device."""

    programs = ("hdparm", "timeout")

    def __init__(self, spec: HdparmSpec) -> None:
        self.spec = spec

    @property
    def working_set(self) -> int:
        """Unknown before (0): hdparm reads as far as it comes in its seconds; the sample says how far."""
        return 0

    @property
    def timed_s(self) -> float | None:
        """What hdparm(8) says; on a device that ends before, it is less."""
        return _SECONDS[self.spec.timing]

    def prepare(self, place: Place) -> None:
        """Refuse a place without a device; hdparm itself flushes the device's cached pages.

        Raises:
            RequestError: there is none.
        """
        _device(place)

    def run(self, place: Place) -> Sample:
        """Time the device.

        Raises:
            RequestError: the place has no device.
            RigError: hdparm failed, ran too long, or said what cannot be read.
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
        """Nothing was written."""


def read_ended(spec: HdparmSpec, ended: Completed) -> HdparmState:
    """Judge an hdparm that ended.

    Raises:
        RigError: it failed, or one of the timings that were asked is missing.
    """
    # It may end with status 0 and say on standard error that it could not read.
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
