"""A measurement: its probes run in order, and each sample is stored as soon as it exists."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from raidproof.core.errors import DeadlineExceeded, RequestError
from raidproof.core.waiting import Deadline
from raidproof.drive_measurement import check, flash_probes, rotational_probes
from raidproof.drive_measurement.sample import Drive, Facts, Probe, Sample, Samples


class SampleFile:
    """A file with the samples of a measurement: a line of facts, then a line of JSON for each sample."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, facts: Facts) -> None:
        """Create the file; an existing file is replaced."""
        self._write("w", facts.model_dump_json())

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        self._write("a", sample.model_dump_json())

    def resume(self) -> tuple[Facts, Samples]:
        """Return the facts and the samples, and remove an incomplete last line, so that further lines can follow.

        Raises:
            RequestError: the file cannot be read or written, or is no file of samples.
        """
        facts, samples = self.load()
        partial = self.path.with_name(f"{self.path.name}.partial")
        copy = SampleFile(partial)
        copy.begin(facts)
        for sample in samples.values():
            copy.add(sample)
        partial.replace(self.path)
        return facts, samples

    def load(self) -> tuple[Facts, Samples]:
        """Return the facts and the samples. An incomplete last line, of an interrupted write, is ignored.

        Raises:
            RequestError: the file cannot be read, or is no file of samples.
        """
        try:
            lines = self.path.read_text().splitlines(keepends=True)
            facts = Facts.model_validate_json(lines[0])
            samples = [Sample.model_validate_json(line) for line in lines[1:] if line.endswith("\n")]
        except OSError as error:
            raise RequestError(f"cannot read {self.path}: {error.strerror}") from error
        except (ValueError, IndexError) as error:
            raise RequestError(
                f"{self.path} has no samples of a drive", remedy="measure again without --resume"
            ) from error
        return facts, {sample.probe.name: sample for sample in samples}

    def _write(self, mode: str, line: str) -> None:
        try:
            with self.path.open(mode) as file:
                file.write(f"{json.dumps(json.loads(line), separators=(',', ':'))}\n")
        except OSError as error:
            raise RequestError(f"cannot write {self.path}: {error.strerror}") from error


def all_probes(facts: Facts, samples: Samples) -> Iterator[Probe]:
    """Yield the probes of the fit, then those of the check; a probe may depend on the samples of earlier ones."""
    fit = rotational_probes.probes if facts.rotational else flash_probes.probes
    return chain(fit(facts, samples), check.probes(facts))


def measure(
    drive: Drive,
    facts: Facts,
    samples: Samples,
    *,
    keep: Callable[[Sample], object] = lambda _: None,
    progress: Callable[[Probe], object] = lambda _: None,
    deadline: Deadline | None = None,
) -> bool:
    """Execute all probes that have no sample yet, and add their samples; return whether all probes have samples.

    ``keep`` stores each new sample. After the deadline, no further probe begins, and a probe that exceeds it has no
    sample.
    """
    for probe in all_probes(facts, samples):
        if probe.name in samples:
            continue
        if deadline is not None and deadline.passed:
            return False
        progress(probe)
        try:
            sample = drive(probe)
        except DeadlineExceeded:
            return False
        keep(sample)
        samples[probe.name] = sample
    return True
