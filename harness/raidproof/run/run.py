"""A run from its beginning to its report: its labs, its crash tests one after the other, and their record."""

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Self

import raidproof
from raidproof.core import command
from raidproof.core.errors import NotEffective, NotRecovered, RequestError, RequirementMissing, RigError
from raidproof.core.files import sync_tree
from raidproof.core.layer import read_files
from raidproof.core.log import logger, say, to_file
from raidproof.core.topology import DiskSpec, Topology
from raidproof.core.waiting import wall_clock
from raidproof.disk.profile import load_profile
from raidproof.fault import FaultEffects
from raidproof.image.software import software_of
from raidproof.lab.lab import Lab
from raidproof.machine.kernel_errors import note_usual
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import why_no_capture
from raidproof.provider.registry import lab_of
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.environment import Environment, MachineRecord
from raidproof.record.results.index import update
from raidproof.record.results.progress import end_progress, report_progress
from raidproof.record.results.run_lock import locked
from raidproof.report.html import write_html
from raidproof.report.junit import write_junit
from raidproof.run.crash_test import NO_FAULT, CrashTestSpec, run_crash_test, schedule_of
from raidproof.run.named import name_crash_test
from raidproof.storage.array import ARRAYS
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.member import MEMBER_LAYERS
from raidproof.storage.volume import VOLUMES
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.run import conclude_early, conclude_run, conclude_stored

PACKAGES = ("nfs-", "libnfsidmap", "rpcbind", "libtirpc", "fio", "linux-image")
"""Prefixes of the names of packages that a record lists, in addition to the tools of arrays and file systems.

Fedora's nfs-utils is nfs-common in Debian."""
_CPUS, _NODES = "/sys/devices/system/cpu/online", "/sys/devices/system/node/online"
_BUILD = "/proc/version"


UNSEEN_REPLIES = (
    "a reply that the server sends milliseconds too early is not detected: the time of an acknowledgement is that at "
    "which the client's report reaches the harness, not that of the server's reply on the network"
)


def environment_of(lab: Lab) -> Environment:
    """Return hardware and software of this host and of every machine in a lab."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return Environment(
        raidproof=raidproof.__version__,
        provider=lab.topology.provider,
        host_kernel=platform.release(),
        host_cpu=cpu.group(1) if cpu else "unknown",
        host_cpus=os.cpu_count() or 0,
        host_tools={name: version_of(words) for name, words in lab.programs.items()},
        machines=[machine_record(machine) for machine in lab.machines.values()],
        notes=[*lab.notes, *slow_motion_notes(lab.topology.slow_motion), *prediction_notes(lab.topology.disks)],
        cannot_prove=[*lab.cannot_prove, *unseen_replies(lab)],
    )


def slow_motion_notes(factor: float) -> list[str]:
    """Return a note on the slow-motion factor for the reader of a report; empty without slow motion."""
    if factor == 1:
        return []
    return [f"slow motion, factor {factor:g}: disks and network ran slower by this factor, and rates are converted"]


def prediction_notes(disks: Iterable[DiskSpec]) -> list[str]:
    """Return how well each profile that was measured predicts its drive, for the reader of a report."""
    names = dict.fromkeys(disk.profile for disk in disks if disk.profile is not None)
    profiles = [load_profile(name) for name in names]
    return [f"disk profile {one.name}: {one.measured.sentence}" for one in profiles if one.measured is not None]


def unseen_replies(lab: Lab) -> list[str]:
    """Return what a run cannot prove because the server's replies cannot be captured; empty if they can be."""
    why = why_no_capture(lab)
    return [] if why is None else [f"{UNSEEN_REPLIES} ({why})"]


def version_of(program: Sequence[str]) -> str:
    """Return the first line that a program of this host prints for ``--version``."""
    return command.succeed([*program, "--version"]).splitlines()[0]


def machine_record(machine: Machine) -> MachineRecord:
    """Return the record of a machine: its hardware and effective software."""
    software = software_of(machine)
    found = read_files(machine, [_CPUS, _NODES, _BUILD])
    return MachineRecord(
        name=machine.name,
        role=machine.spec.role.value,
        asked=str(machine.spec.software),
        kernel=software.kernel,
        build=found.get(_BUILD, ""),
        packages=of_interest(software.packages),
        cpus=count_of(found[_CPUS]) if _CPUS in found else 1,
        # A kernel without NUMA does not list its single node.
        numa_nodes=count_of(found[_NODES]) if _NODES in found else 1,
        boot_s=machine.boot_s,
    )


def of_interest(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the packages whose names begin with one of `PACKAGES`, or that are tools of a layer of the storage."""
    layers = (FILESYSTEMS, VOLUMES, ARRAYS, MEMBER_LAYERS)
    tools = (kind.packages for registry in layers for _, kind in registry.items())
    begins = (*PACKAGES, *chain.from_iterable(tools))
    return {name: version for name, version in packages.items() if name.startswith(begins)}


def count_of(ranges: str) -> int:
    """Return the number of elements in a list in the kernel's format, such as ``0-3,8``."""
    pairs = [(first, last or first) for first, _, last in (part.partition("-") for part in ranges.split(","))]
    return sum(int(last) - int(first) + 1 for first, last in pairs)


class Run:
    """A run, as a context manager that on exit writes the report and ends the lab, unless the lab is to be kept."""

    def __init__(
        self, what: str, results: Path, topology: Topology, *, keep: bool = False, resumed: RunStore | None = None
    ) -> None:
        self.store = resumed or RunStore.create(results, what)
        self.topology = topology
        self.keep = keep
        if resumed is None:
            self.record = RunRecord(
                run=self.store.path.name,
                started=wall_clock(),
                command=command_line(sys.argv),
                topology=topology.model_dump(mode="json"),
            )
        else:
            self.record = resumed.load()
            self.record.ended = self.record.ended_early = None
        self.report: Path | None = None
        """Path of the HTML report; None until it is written."""
        self._lab: Lab | None = None
        self._labs = len(list(self.store.path.glob("lab*")))
        self._no_lab: str | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._undo.enter_context(locked(self.store.path))
        self._undo.enter_context(to_file(self.store.path / "raidproof.log"))
        self.store.save(self.record)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._undo:
            try:
                # An interrupted run leaves no lab behind, even with --keep.
                self.discard_lab(keep=self.keep and error is None)
            finally:
                self.store.read_explorations(self.record)
                conclude_run(self.record)
                if error is not None:
                    self.record.ended_early = str(error) or type(error).__name__
                    conclude_early(self.record, self.record.ended_early)
                self.record.ended = wall_clock()
                end_progress(self.store.path)
                self.report = write_report(self.record, self.store)
                # The record is durable: so must be the observations that it names.
                sync_tree(self.store.path)

    @property
    def lab(self) -> Lab:
        """The lab of the run, which is booted if none is running.

        Raises:
            RigError: the lab does not boot. After one failure no boot is tried again, as each may take a minute.
        """
        if self._no_lab is not None:
            raise RigError(f"this run has no lab, because an earlier boot failed: {self._no_lab}")
        if self._lab is None:
            self._labs += 1
            lab = lab_of(self.topology, logs=self.store.directory(f"lab{self._labs}"), keep=self.keep)
            try:
                self._lab = lab.__enter__()
            except RigError as error:
                self._no_lab = str(error)
                raise
            self.record.environment = environment_of(lab)
            note_usual(lab.machines.values())
        return self._lab

    def has_lab(self, lab: Lab) -> bool:
        """Return whether a lab is the one that runs now."""
        return self._lab is lab

    def discard_lab(self, *, keep: bool = False) -> None:
        """End the lab, for example because its state is unknown after an error; ``keep``: leave it running."""
        lab, self._lab = self._lab, None
        if lab is None:
            return
        lab.keep = keep
        lab.__exit__(None, None, None)
        if keep:
            say(
                f"the lab is still running: ./raidproof shell server (or "
                f"{', '.join(one.name for one in lab.clients)}) opens a shell; ./raidproof gc --kept ends the lab"
            )

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        """Run one crash test, save its observations, and judge it; return its record. Errors of the rig are recorded.

        Raises:
            RequestError: the lab's disks are too few or too small for the stack, or the fault is unknown. Nothing is
                recorded then.
        """
        spec.stack.refuse_disks({disk.serial: disk.size for disk in self.topology.disks})
        spec.stack.refuse_servers(2 if self.topology.standby else 1)
        schedule = schedule_of(spec)
        schedule.refuse(spec.stack)
        fault = schedule.main_fault
        record = CrashTestRecord(
            name=spec.name,
            title=spec.title,
            asked=spec.stack.model_dump(mode="json"),
            workload={
                "ledger": spec.ledger.model_dump(mode="json"),
                "ledger_seconds": spec.ledger_seconds,
                "fio": spec.fio.model_dump(mode="json") if spec.fio else None,
            },
            cache_mode=" ".join([spec.cache_mode.value, *(spec.cache_mode_of or ())]),
            fault=NO_FAULT if fault is None else fault.name,
            effects=FaultEffects() if fault is None else fault.effects(spec.stack),
            seed=spec.seed,
            control=spec.control,
        )
        report_progress(self.store.path, f"crash test: {spec.title}", done=len(self.record.cycles), unit="crash tests")
        self.record.cycles.append(record)
        try:
            run_crash_test(self.lab, spec, record, self.store.path)
        except NotRecovered as error:
            record.not_recovered = str(error)
            self.discard_lab()
        except NotEffective as error:
            record.not_effective = str(error)
            self.discard_lab()
        except RigError as error:
            logger.exception("cycle %s", spec.name)
            record.rig_error = str(error)
            self.discard_lab()
        except RequirementMissing as error:
            record.requirement_missing = str(error)
            if record.files.write_log is not None:  # the stack is built, and clients may be working
                self.discard_lab()
        except BaseException as error:
            record.rig_error = f"interrupted: {error!r}"
            judge_crash_test(record, self.store.path)
            # The next crash test must not find the stack or the write log of this crash test.
            self.discard_lab()
            raise
        finally:
            self.store.save(self.record)
        judge_crash_test(record, self.store.path)
        name_crash_test(record, self.record, self.store.path)
        self.store.save(self.record)
        return record


def command_line(arguments: list[str]) -> list[str]:
    """Return the command line that repeats the run."""
    program, *rest = arguments
    return ["./raidproof", *rest] if Path(program).name == "__main__.py" else [Path(program).name, *rest]


def write_report(record: RunRecord, store: RunStore) -> Path:
    """Write a run's record, HTML report and JUnit XML; return the path of the HTML report."""
    page = store.path / "report.html"
    store.save(record)
    write_html(record, page)
    write_junit(record, store.path / "junit.xml")
    update(store.path)
    return page


def count_explorations(store: RunStore) -> None:
    """Conclude a stored run again with the explorations in its directory, and write its record and reports.

    Of a run that has not ended only the HTML report is written: its process writes the record.
    """
    try:
        with locked(store.path):
            record = store.load()
            if record.ended is not None:
                conclude_stored(record)
                write_report(record, store)
                return
    except RequestError as error:
        logger.info("the record of %s is not written: %s", store.path, error)
    write_html(store.load(), store.path / "report.html")
