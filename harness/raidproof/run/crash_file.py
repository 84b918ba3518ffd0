"""A crash state as a file: the content of all disks, and what is needed to judge what a machine makes of it.

The state needs no luck to occur again: `recover` gives its content to the disks of a machine with any kernel. The file
is a ZIP archive with the state's content as a write log, the record and the history of the crash test, and the terms
of the verdict.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.files import write_durably
from raidproof.core.log import step
from raidproof.core.scratch import scratch_folder
from raidproof.core.topology import Role, SoftwareSpec, Topology
from raidproof.crash.checker import PreloadedLab, check_after_boot, checker_topology, config_of
from raidproof.crash.states import CrashState
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import MemberInfo, new_log
from raidproof.record import RunStore
from raidproof.record.cell import Strict
from raidproof.record.exploration import Observation, Rows, StateRecord
from raidproof.record.results.store import RECORD
from raidproof.run.source import Source, deadline_s, scan_config_of
from raidproof.storage.stack import StackSpec
from raidproof.verdict.oracle import Judgement, Oracle

SCHEMA = 1
TERMS, CONTENT = "crash-state.json", "content.log"
"""Names of the files in the archive with the terms of the verdict, and with the content of the disks."""
SUFFIX = ".crash.zip"


class Terms(Strict):
    """The terms by which the observation of a crash state is judged."""

    schema_version: int = SCHEMA
    state: str
    """Name of the state."""
    kernel: str
    """Release of the kernel on which the state was recorded; empty if not known."""
    acknowledged_ns: int
    """The instant in ns before which an acknowledgement obliges the state (CLOCK_MONOTONIC of the recording host)."""
    torn: bool
    """Whether a write request survived in part."""
    torn_blocks: list[tuple[int, int]]
    """File number and offset of each block of the ledger in these requests."""
    corrupted_ns: int | None
    """The instant of the first disk fault; None without one."""
    rows: Rows
    """The redundancy of the state, computed from the contents of the members."""
    starts_dirty: bool
    """Whether an array that is dirty and degraded is started nevertheless."""
    without: list[str]
    """Serials of the members that are lost with the power cut."""


def export(source: Source, state: CrashState, path: Path) -> Path:
    """Write a crash state to the file ``path``, and return the path.

    Raises:
        RequestError: the file exists or cannot be written; or disks lied, and the verdict needs the whole write log.
    """
    cursor, stats = source.stages()
    if stats.lied:
        raise RequestError(
            f"crash state {state.name} cannot be exported: a disk acknowledged flushes that it did not execute, and "
            "the blame of a loss needs the whole write log",
            remedy="export a state of a crash test with honest disks",
        )
    job = source.job_of(state, cursor)
    terms = Terms(
        state=state.name,
        kernel=source.run.server_kernel,
        acknowledged_ns=source.recording.acknowledged_ns(state.cut),
        torn=stats.torn_in(state),
        torn_blocks=sorted(stats.torn_blocks(state)),
        corrupted_ns=source.recording.corrupted_ns,
        rows=job.rows,
        starts_dirty=source.starts_dirty,
        without=[] if source.lost_member is None else [source.lost_member],
    )
    record = source.run.model_copy(update={"cycles": [source.cycle], "cells": [], "known": None})
    files = source.cycle.files
    kept = [one for one in (files.history, files.replies, files.application) if one is not None]
    infos = [MemberInfo(one.serial, one.size, CacheMode.LYING, CacheMode.VOLATILE) for one in source.recording.members]
    if path.exists():
        raise RequestError(f"{path} exists", remedy="choose another file, or delete this one")
    try:
        with scratch_folder("crash-file") as folder:
            content, packed = folder / CONTENT, folder / "packed.zip"
            with new_log(content, infos) as log:
                job.base.after(None).then(job.patch).write_to(log, infos)
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(TERMS, terms.model_dump_json(indent=1))
                archive.writestr(RECORD, record.model_dump_json())
                for name in kept:
                    archive.write(source.store.path / name, name)
                archive.write(content, CONTENT)
            write_durably(path, packed.read_bytes())
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error
    return path


class CrashFile:
    """An exported crash state, unpacked in a folder."""

    def __init__(self, folder: Path) -> None:
        self.store = RunStore(folder)
        self.terms = Terms.model_validate_json((folder / TERMS).read_text())
        self.run = self.store.load()
        (self.cycle,) = self.run.cycles
        self.content = folder / CONTENT

    @property
    def stack(self) -> StackSpec:
        """The stack whose disks the file contains."""
        return StackSpec.model_validate(self.cycle.asked)

    def topology(self, software: SoftwareSpec) -> Topology:
        """Return the topology of the machine that recovers the state, whose server has ``software`` if it is given."""
        found = Topology.model_validate(self.run.topology)
        server = found.server.model_copy(update={"software": software.over(found.server.software)})
        return found.model_copy(
            update={"machines": tuple(server if one.role is Role.SERVER else one for one in found.machines)}
        )

    def judge(self, observation: Observation) -> Judgement:
        """Return the judgement of what a machine observed after it recovered the state."""
        oracle = Oracle.of(self.cycle, self.store.path, self.terms.corrupted_ns)
        return oracle.judge(
            observation.model_copy(update={"rows": self.terms.rows}),
            self.terms.acknowledged_ns,
            torn=self.terms.torn,
            torn_blocks=frozenset(self.terms.torn_blocks),
        )


@contextmanager
def opened(path: Path) -> Iterator[CrashFile]:
    """Unpack an exported crash state for the duration of the context.

    Raises:
        RequestError: the file does not exist, or is no exported crash state, or one of a later version.
    """
    with scratch_folder("crash-file") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                # Members with an absolute path or with ".." are extracted below the folder (zipfile.extractall).
                archive.extractall(folder)
            found = CrashFile(folder)
        except FileNotFoundError as error:
            raise RequestError(f"{path} does not exist, or lacks {error.filename}") from error
        except (OSError, ValueError, ValidationError, zipfile.BadZipFile) as error:
            raise RequestError(f"{path} is no crash state that `raidproof explore --export` wrote: {error}") from error
        if found.terms.schema_version > SCHEMA:
            raise RequestError(f"{path} has version {found.terms.schema_version}; this raidproof reads up to {SCHEMA}")
        yield found


def recover(found: CrashFile, software: SoftwareSpec, logs: Path) -> StateRecord:
    """Boot a machine with the crash state on its disks, let it recover, and judge the result.

    ``software``: the software of the machine, where it differs from that of the recording. ``logs``: folder for
    consoles.

    Raises:
        RigError: the machine does not boot, or the check failed for a reason other than the state.
    """
    stack, topology = found.stack, found.topology(software)
    config = config_of(
        stack,
        scan_config_of(found.cycle, found.store.path),
        starts_dirty=found.terms.starts_dirty,
        without=found.terms.without,
    )
    bare = checker_topology(topology, raid6=stack.array.needs_raid6)
    step(f"recovering crash state {found.terms.state} on a newly booted machine")
    with PreloadedLab(bare, found.content, logs=logs, keep=False) as lab:
        release = lab.server.succeed(["uname", "--kernel-release"]).strip()
        observation = check_after_boot(lab, stack, config, deadline_s(found.cycle))
    judged = found.judge(observation)
    return StateRecord(
        run=found.run.run,
        cycle=found.cycle.name,
        state=found.terms.state,
        kernel=release,
        recorded_on=found.terms.kernel,
        outcome=judged.outcome,
        reason=judged.reason,
        blame=judged.blame,
        examples=list(judged.examples),
    )
