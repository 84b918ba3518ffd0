"""A run from its beginning to its report: labs and crash tests one after the other, all of it recorded."""

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import raidproof
from raidproof.core import command
from raidproof.core.errors import NotEffective, NotRecovered, RequirementMissing, RigError
from raidproof.core.layer import read_files
from raidproof.core.log import logger, say, to_file
from raidproof.core.topology import Topology
from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.image.software import software_of
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import why_no_capture
from raidproof.provider.registry import lab_of
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.environment import Environment, MachineRecord
from raidproof.report.html import write_html
from raidproof.report.junit import write_junit
from raidproof.run.crash_test import CrashTestSpec, fault_of, run_crash_test
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.verdict.crash_test import conclude_early, conclude_run, judge_crash_test

PACKAGES = ("mdadm", "nfs-", "libnfsidmap", "rpcbind", "libtirpc", "fio", "linux-image")
"""How the names of packages begin that take part beside those of the file systems' tools; nfs-utils is called so by
Fedora, and nfs-common by Debian."""
_CPUS, _NODES = "/sys/devices/system/cpu/online", "/sys/devices/system/node/online"
_BUILD = "/proc/version"


UNSEEN_REPLIES = (
    "a reply that is given milliseconds too early does not show: an acknowledgement is dated when the client's report "
    "of it arrives, not when the server's reply is on the wire"
)


def environment_of(lab: Lab) -> Environment:
    """Read it from the host and from every machine, once."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return Environment(
        raidproof=raidproof.__version__,
        provider=lab.topology.provider,
        host_kernel=platform.release(),
        host_cpu=cpu.group(1) if cpu else "unknown",
        host_cpus=os.cpu_count() or 0,
        host_tools={name: version_of(words) for name, words in lab.programs.items()},
        machines=[machine_record(machine) for machine in lab.machines.values()],
        notes=list(lab.notes),
        cannot_prove=[*lab.cannot_prove, *unseen_replies(lab)],
    )


def unseen_replies(lab: Lab) -> list[str]:
    """Say what goes unnoticed where the server's replies are not captured."""
    why = why_no_capture(lab)
    return [] if why is None else [f"{UNSEEN_REPLIES} ({why})"]


def version_of(program: Sequence[str]) -> str:
    """Return what a program of this host says of its version."""
    return command.succeed([*program, "--version"]).splitlines()[0]


def machine_record(machine: Machine) -> MachineRecord:
    """Read what a machine is and runs."""
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
        # A kernel without NUMA has one node and does not say so.
        numa_nodes=count_of(found[_NODES]) if _NODES in found else 1,
        boot_s=machine.boot_s,
    )


def of_interest(packages: Mapping[str, str]) -> dict[str, str]:
    """Keep the packages that take part in what is tested."""
    begins = (*PACKAGES, *(name for _, kind in FILESYSTEMS.items() for name in kind.packages))
    return {name: version for name, version in packages.items() if name.startswith(begins)}


def count_of(ranges: str) -> int:
    """Count what a list of the kernel's names, as ``0-3,8``."""
    pairs = [(first, last or first) for first, _, last in (part.partition("-") for part in ranges.split(","))]
    return sum(int(last) - int(first) + 1 for first, last in pairs)


class Campaign:
    """A run. A context manager: leaving it writes the report, whatever has happened, and ends the lab."""

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
        """The page that a person opens, once it is written."""
        self._lab: Lab | None = None
        self._labs = len(list(self.store.path.glob("lab*")))
        self._no_lab: str | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._undo.enter_context(to_file(self.store.path / "raidproof.log"))
        self.store.save(self.record)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._undo:
            try:
                # A run that was interrupted leaves nothing behind, whatever was asked.
                self.discard_lab(keep=self.keep and error is None)
            finally:
                conclude_run(self.record)
                if error is not None:
                    self.record.ended_early = str(error) or type(error).__name__
                    conclude_early(self.record, self.record.ended_early)
                self.record.ended = wall_clock()
                self.report = write_report(self.record, self.store)

    @property
    def lab(self) -> Lab:
        """The lab, booted if there is none.

        Raises:
            RigError: it does not boot. What did not boot once is not tried again: each try may take a minute.
        """
        if self._no_lab is not None:
            raise RigError(f"there is no lab, as before: {self._no_lab}")
        if self._lab is None:
            self._labs += 1
            lab = lab_of(self.topology, logs=self.store.directory(f"lab{self._labs}"), keep=self.keep)
            try:
                self._lab = lab.__enter__()
            except RigError as error:
                self._no_lab = str(error)
                raise
            self.record.environment = environment_of(lab)
        return self._lab

    def discard_lab(self, *, keep: bool = False) -> None:
        """End the lab: after an error nobody knows its state."""
        lab, self._lab = self._lab, None
        if lab is None:
            return
        lab.keep = keep
        lab.__exit__(None, None, None)
        if keep:
            say(
                f"the lab goes on: ./raidproof shell server (or "
                f"{', '.join(one.name for one in lab.clients)}); ./raidproof gc --kept ends it"
            )

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        """Carry out one cycle, save what was seen, and judge it. An error of the rig ends in the record.

        Raises:
            RequestError: the lab has not the disks for it, or there is no such fault; nothing is recorded.
        """
        spec.stack.refuse_disks({disk.serial: disk.size for disk in self.topology.disks})
        fault = fault_of(spec)
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
            fault=spec.fault_name,
            effects=FaultEffects() if fault is None else fault.effects(spec.stack),
            seed=spec.seed,
            control=spec.control,
        )
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
            if record.files.write_log is not None:  # it was found out with a stack standing and clients at work
                self.discard_lab()
        except BaseException as error:
            record.rig_error = f"interrupted: {error!r}"
            judge_crash_test(record, self.store.path)
            # The next cycle must not find a stack, or a write log, that this one has left.
            self.discard_lab()
            raise
        finally:
            self.store.save(self.record)
        judge_crash_test(record, self.store.path)
        self.store.save(self.record)
        return record


def command_line(arguments: list[str]) -> list[str]:
    """Return what a user types to have the same run again."""
    program, *rest = arguments
    return ["./raidproof", *rest] if Path(program).name == "__main__.py" else [Path(program).name, *rest]


def write_report(record: RunRecord, store: RunStore) -> Path:
    """Write record, page and JUnit XML; return the page."""
    page = store.path / "report.html"
    store.save(record)
    write_html(record, page)
    write_junit(record, store.path / "junit.xml")
    return page
