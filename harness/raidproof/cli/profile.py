"""`raidproof profile`: a profile of a real drive, by measurement."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.options import Json
from raidproof.cli.output import emit, say
from raidproof.core.errors import RequestError

if TYPE_CHECKING:
    from raidproof.core.waiting import Deadline
    from raidproof.drive_measurement.measurement import SampleFile
    from raidproof.drive_measurement.real_drive import Run
    from raidproof.drive_measurement.result import DriveMeasurement
    from raidproof.drive_measurement.sample import Drive, Facts, Probe, Samples

app = typer.Typer(name="profile", help="Profiles of drives: measure a real drive.", no_args_is_help=True)


@app.callback()
def profile() -> None:
    """Measure a real drive, and make a profile of it."""


@app.command()
def measure(
    device: Annotated[Path | None, typer.Argument(metavar="DEVICE", help="Block device of the drive.")] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File for the profile; ends in .toml.")
    ] = Path("my-drive.toml"),
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="DIR", help="Measure a temporary file in this directory in place of a device."),
    ] = None,
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="With --file: the size of the file.")] = "4GiB",
    ssh: Annotated[
        str | None,
        typer.Option(metavar="[USER@]HOST", help="Measure the DEVICE of this machine, over SSH."),
    ] = None,
    sudo: Annotated[bool, typer.Option("--sudo", help="With --ssh: read the device as root by sudo.")] = False,
    share: Annotated[
        str, typer.Option("--share", metavar="PERCENT", help="Share of the time in which the drive may be read.")
    ] = "100%",
    minutes: Annotated[float, typer.Option("--minutes", metavar="N", help="End after this time.")] = 6.0,
    rotational: Annotated[
        bool | None,
        typer.Option("--rotational/--flash", help="The kind of the drive, in place of what the kernel reports."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted measurement.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Measure a drive, and write its profile.

    The device is only read. The profile says how well it predicts reads that were not used to make it.
    The samples are stored beside the profile, in FILE with the ending .samples.jsonl, also after Ctrl-C.
    """
    from raidproof.core.waiting import Deadline  # noqa: PLC0415
    from raidproof.drive_measurement.measurement import SampleFile  # noqa: PLC0415
    from raidproof.drive_measurement.result import result_of  # noqa: PLC0415

    if (device is None) == (file is None):
        raise RequestError("give a block device, or --file with a directory")
    if ssh is not None and device is None:
        raise RequestError("--ssh needs the block device", remedy="name it, for example /dev/sdb")
    if minutes <= 0:
        raise RequestError(f"--minutes {minutes:g}: not more than 0")
    stored = SampleFile(_samples_path(output, force=force, resume=resume))
    deadline = Deadline.after(minutes * 60)
    with _opened(_Target(device, file, size, ssh, sudo), _fraction(share), deadline, rotational) as (drive, facts):
        samples: Samples = {}
        if resume:
            before, samples = stored.resume()
            _require_same(before, facts)
        else:
            stored.begin(facts)
        complete = _measured(drive, facts, samples, stored, deadline)
    result = result_of(facts, samples, complete=complete, name=output.stem)
    result = result.model_copy(update={"samples_file": str(stored.path)})
    if result.profile is not None:
        _write(output, result.profile)
        result = result.model_copy(update={"profile_file": str(output)})
    emit(result, json, lambda console: say(console, _summary(result)))
    if not complete:
        raise RequestError(
            f"the measurement did not end within {minutes:g} minutes: {len(samples)} probes are in {stored.path}",
            remedy="continue with --resume",
        )


_EXPECTED = {True: 52, False: 105}
"""About how many probes a measurement has, by whether the drive rotates."""


def _measured(drive: "Drive", facts: "Facts", samples: "Samples", stored: "SampleFile", deadline: "Deadline") -> bool:
    """Execute the probes, and show the progress; return whether all probes have samples."""
    from raidproof.core import log  # noqa: PLC0415
    from raidproof.drive_measurement import measurement  # noqa: PLC0415

    about = _EXPECTED[facts.rotational]

    def show(probe: "Probe") -> None:
        if log.redrawn() or len(samples) % 10 == 0:
            log.step(f"measuring {facts.device}: probe {len(samples) + 1} of about {about}: {probe.name}")

    try:
        with log.progress(f"measuring {facts.device}: about {about} probes"):
            return measurement.measure(drive, facts, samples, keep=stored.add, progress=show, deadline=deadline)
    except KeyboardInterrupt:
        log.say(f"interrupted: {len(samples)} probes are in {stored.path}; continue with --resume")
        raise


@dataclass(frozen=True)
class _Target:
    """What is measured: a device of this host or of another machine, or a file of our own."""

    device: Path | None
    folder: Path | None
    size: str
    ssh: str | None
    sudo: bool

    @property
    def name(self) -> str:
        """The name in messages and in the profile."""
        if self.folder is not None:
            return f"a file in {self.folder.resolve()}"
        return f"{self.device} of {self.ssh.rpartition('@')[2]}" if self.ssh is not None else f"{self.device}"


@contextmanager
def _opened(
    target: _Target, share: float, deadline: "Deadline", rotational: bool | None
) -> "Iterator[tuple[Drive, Facts]]":
    """Yield the drive, and what the kernel reports about it; ``rotational`` overrides the kernel's report."""
    from raidproof.drive_measurement import real_drive  # noqa: PLC0415

    with ExitStack() as cleanup:
        path = str(target.device)
        run: Run = real_drive.on_this_host
        if target.ssh is not None:
            run = cleanup.enter_context(_logged_in(target.ssh, path, sudo=target.sudo))
        elif target.folder is not None:
            path = cleanup.enter_context(_written(target.folder, target.size))
        drive = real_drive.RealDrive(path, run, share=share, deadline=deadline)
        facts, known = drive.facts()
        if rotational is None and not known:
            raise RequestError(
                f"the kernel does not report whether the drive of {target.name} rotates",
                remedy="name a local drive, or give --rotational or --flash",
            )
        kind = facts.rotational if rotational is None else rotational
        yield drive, facts.model_copy(update={"device": target.name, "rotational": kind})


_DEVICE = re.compile(r"/dev/[A-Za-z0-9][A-Za-z0-9/:._+-]*")
"""A path of a device that a command on another machine may contain."""


@contextmanager
def _logged_in(destination: str, device: str, *, sudo: bool) -> "Iterator[Run]":
    from raidproof.core.log import progress, say  # noqa: PLC0415
    from raidproof.drive_measurement.real_drive import announcement  # noqa: PLC0415
    from raidproof.existing.remote import connection  # noqa: PLC0415
    from raidproof.provider.hosts.login import HostLogin  # noqa: PLC0415

    user, _, host = destination.rpartition("@")
    if not host or host.startswith("-"):
        raise RequestError(f"--ssh {destination!r}: not [USER@]HOST")
    if not _DEVICE.fullmatch(device):
        raise RequestError(f"{device!r} is no path of a device", remedy="name it as /dev/NAME")
    say(f"measuring {device} of {host} by these commands, none of which writes:")
    for line in announcement(device):
        say(f"  {line}")
    with progress(f"connecting to {host}"), connection(host, HostLogin(host, user or None, sudo=sudo)) as run:
        yield run


@contextmanager
def _written(folder: Path, size: str) -> "Iterator[str]":
    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.core.units import parse_size  # noqa: PLC0415
    from raidproof.drive_measurement.own_file import own_file  # noqa: PLC0415

    with ExitStack() as cleanup:
        with progress(f"writing a temporary file of {size} in {folder}"):
            path = cleanup.enter_context(own_file(folder, parse_size(size)))
        yield path


def _samples_path(output: Path, *, force: bool, resume: bool) -> Path:
    if output.suffix != ".toml":
        raise RequestError(f"{output} does not end in .toml", remedy="plans name a file with a profile by this ending")
    samples = output.with_suffix(".samples.jsonl")
    for path in (output, samples):
        if path.exists() and not force and not resume:
            raise RequestError(f"{path} already exists", remedy="replace it with --force, or continue with --resume")
    return samples


def _require_same(before: "Facts", now: "Facts") -> None:
    if (before.size, before.model, before.serial, before.rotational) != (
        now.size,
        now.model,
        now.serial,
        now.rotational,
    ):
        raise RequestError(
            f"the samples are those of another drive: {before.device}, {before.model} {before.serial}, "
            f"{before.size} bytes",
            remedy="name the same drive, or measure without --resume",
        )


def _fraction(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.01 <= share <= 1:
        raise RequestError(f"--share {text!r}: not between 1% and 100%")
    return share


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error


def _summary(result: "DriveMeasurement") -> "Iterator[str]":
    yield f"{result.facts.device}: {result.probes} probes, {result.reads:,} reads, {result.bytes / 1e6:,.0f} MB"
    if result.profile_file is None or result.median_deviation is None:
        yield "no profile: the measurement is incomplete"
        return
    yield "workloads that were not used for the profile:"
    yield f"  {'reads per second':<58} {'drive':>10} {'profile':>10} {'deviation':>10}"
    for cell in result.cells:
        speeds = f"{cell.measured_per_s:>10,.0f} {cell.predicted_per_s:>10,.0f}"
        yield f"  {cell.workload:<58} {speeds} {cell.deviation:>+10.1%}"
    yield f"median deviation {result.median_deviation:.1%}"
    yield f"not measured, because reads do not show it: {result.assumed}"
    yield from (f"not explained by the profile: {one}" for one in result.unexplained)
    yield f"profile: {result.profile_file}; samples: {result.samples_file}"
