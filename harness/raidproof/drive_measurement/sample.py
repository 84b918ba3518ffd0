"""Probes of a drive, and the samples that they give: the begin and the end of each request."""

from collections.abc import Callable
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Read(NamedTuple):
    """One read request."""

    offset: int
    """Place on the drive in bytes."""
    length: int
    """Number of bytes."""
    pause_us: int = 0
    """Time without requests before this request. Only probes with a depth of 1 have pauses."""


class Probe(BaseModel):
    """A sequence of reads, with a fixed number of them in progress at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    depth: int = 1
    """Number of reads in progress at the same time."""
    reads: tuple[Read, ...]
    separate: bool = False
    """Whether only the time of each single read is used, so that pauses between the reads do not change the result."""

    @property
    def bytes(self) -> int:
        """Number of bytes that the probe reads."""
        return sum(read.length for read in self.reads)


class Sample(BaseModel):
    """The times of the reads of one probe, in the order of the probe's reads, from the begin of the first read on."""

    model_config = ConfigDict(extra="forbid")

    probe: Probe
    begun_ns: list[int]
    ended_ns: list[int]
    processor_ns: int = 0
    """Processor time of the program that read the drive."""
    waited_ns: int = 0
    """Time for which this program waited for a processor; all its threads together."""

    @property
    def latencies_us(self) -> list[float]:
        """The latency of each read."""
        return [(end - begin) / 1e3 for begin, end in zip(self.begun_ns, self.ended_ns, strict=True)]

    @property
    def duration_s(self) -> float:
        """Time from the begin of the first read to the end of the last one."""
        return (max(self.ended_ns) - min(self.begun_ns)) / 1e9

    @property
    def reads_per_s(self) -> float:
        """Number of reads per second."""
        return len(self.probe.reads) / self.duration_s

    @property
    def sequential_mb_s(self) -> float:
        """Rate of sequential reads in 10^6 bytes per second, without the positioning before the first one."""
        return sum(read.length for read in self.probe.reads[1:]) / (max(self.ended_ns) - self.ended_ns[0]) * 1e3


class Facts(BaseModel):
    """What the kernel reports about a drive."""

    model_config = ConfigDict(extra="forbid")

    device: str
    """The measured device or file."""
    size: int
    """Size in bytes."""
    rotational: bool
    """Whether the drive has rotating platters, as the kernel reports."""
    model: str = ""
    serial: str = ""
    write_back: bool | None = None
    """Whether the drive has a volatile write cache, as the kernel reports; None: unknown."""
    sector: int = 512
    """Alignment of requests in bytes: the logical block size, or that of the file system."""
    largest: int = 1 << 20
    """Greatest number of bytes that the kernel sends to the drive in one command (max_sectors_kb)."""


Samples = dict[str, Sample]
"""The samples of a measurement, by the name of the probe, in the order of their execution."""
Drive = Callable[[Probe], Sample]
"""Executes a probe on a drive."""


_ROUND = " / "


def in_round(probe: Probe, number: int) -> Probe:
    """Return a probe with a name for one of several rounds, which begin at 0."""
    return probe.model_copy(update={"name": f"{probe.name}{_ROUND}{number}"}) if number else probe


def base_name(probe: Probe) -> str:
    """Return the name of a probe without its round."""
    return probe.name.partition(_ROUND)[0]


def rounds_of(samples: Samples) -> dict[str, list[Sample]]:
    """Return the samples of all rounds of each probe, by the probe's name without the round."""
    found: dict[str, list[Sample]] = {}
    for sample in samples.values():
        found.setdefault(base_name(sample.probe), []).append(sample)
    return found


def usual(samples: Samples) -> Samples:
    """Return one sample for each probe, by the probe's name without the round: that with the median speed."""
    return {
        name: sorted(found, key=lambda sample: sample.reads_per_s)[len(found) // 2]
        for name, found in rounds_of(samples).items()
    }


def numbered(samples: Samples, prefix: str) -> dict[int, Sample]:
    """Return the samples of all probes whose names are a prefix and a number, by this number, in its order."""
    found = {}
    for name, sample in samples.items():
        word, _, number = name.rpartition(" ")
        if word == prefix and number.isdecimal():
            found[int(number)] = sample
    return dict(sorted(found.items()))
