"""The summary of a run for the index, from the records in the run's directory."""

import tomllib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.topology import Role
from raidproof.plan.plan import default_name
from raidproof.record.cell import PlanRecord
from raidproof.record.outcome import Outcome, worst
from raidproof.record.results.entry import CellEntry, CrashTestEntry, ExplorationEntry, Kind, RunEntry, State
from raidproof.record.results.names import COMPARISON, EXPLORATIONS, begun_at
from raidproof.record.results.store import RunStore
from raidproof.record.run import RunRecord


@dataclass(frozen=True)
class Summary:
    """The entries of one directory in the index."""

    run: RunEntry
    cells: list[CellEntry] = field(default_factory=list)
    crash_tests: list[CrashTestEntry] = field(default_factory=list)
    explorations: list[ExplorationEntry] = field(default_factory=list)


class _Judged(BaseModel):
    """The fields that the records of comparisons and explorations share."""

    outcome: Outcome
    reason: str = ""
    provider: str | None = None
    plan: str | None = None
    cycle: str = ""
    judged: int = 0
    broken: int = 0
    counts: bool = True


def summary_of(folder: Path, kind: Kind) -> Summary:
    """Return the summary of a directory; a record that cannot be read has the state `State.UNREADABLE`."""
    if kind is Kind.COMPARISON:
        return Summary(_comparison(folder))
    explorations = [_exploration(path) for path in sorted(folder.glob(EXPLORATIONS))]
    outcomes = [one.outcome for one in explorations if one.outcome is not None and one.counts]
    explored = {"explored": worst(outcomes) if outcomes else None}
    try:
        record = RunStore(folder).load()
    except FileNotFoundError:
        unfinished = _entry(folder, State.UNFINISHED).model_copy(update=explored)
        return Summary(unfinished, explorations=explorations)
    except (RequestError, OSError, ValueError) as error:
        unreadable = _entry(folder, State.UNREADABLE).model_copy(update={"reason": str(error), **explored})
        return Summary(unreadable, explorations=explorations)
    return Summary(
        _run(folder, record).model_copy(update=explored),
        [
            CellEntry(
                folder=folder.name,
                name=cell.name,
                compared_with=cell.compared_with,
                settings=cell.settings,
                unit=cell.unit,
                values=cell.measured,
                outcome=cell.outcome,
                rank=cell.rank,
            )
            for cell in record.cells
        ],
        [
            CrashTestEntry(
                folder=folder.name,
                name=cycle.name,
                outcome=cycle.outcome,
                acknowledged=None if cycle.on_server is None else cycle.on_server.acknowledged_total,
                lost=None if cycle.on_server is None else cycle.on_server.lost_total,
            )
            for cycle in record.cycles
        ],
        explorations,
    )


def _entry(folder: Path, state: State, kind: Kind = Kind.RUN, started: datetime | None = None) -> RunEntry:
    return RunEntry(
        folder=folder.name, path=str(folder), kind=kind, state=state, started=started or begun_at(folder.name)
    )


def _run(folder: Path, record: RunRecord) -> RunEntry:
    state = State.UNFINISHED if record.ended is None else State.ENDED
    environment = record.environment
    servers = [one for one in environment.machines if one.role == Role.SERVER] if environment else []
    requested = [one for one in record.topology.get("machines", ()) if one.get("role") == Role.SERVER]
    found = {
        "ended": record.ended,
        "plan": None if record.plan is None else plan_name(record.plan),
        "provider": environment.provider if environment else record.topology.get("provider"),
        "kernel_requested": requested[0].get("software", {}).get("kernel") if requested else None,
        "kernel_effective": servers[0].kernel if servers else None,
        "outcome": record.outcome if state is State.ENDED else None,
        "reason": record.reason if state is State.ENDED else "",
        "cells": len(record.cells),
        "crash_tests": len(record.cycles),
    }
    return _entry(folder, state, started=record.started).model_copy(update=found)


def plan_name(plan: PlanRecord) -> str:
    """Return the name of a recorded plan: that in its text, else that of its file."""
    try:
        named = tomllib.loads(plan.text).get("name")
    except tomllib.TOMLDecodeError:
        named = None
    return str(named or default_name(Path(plan.path)))


def _comparison(folder: Path) -> RunEntry:
    try:
        found = _Judged.model_validate_json((folder / COMPARISON).read_bytes())
    except FileNotFoundError:
        return _entry(folder, State.UNFINISHED, Kind.COMPARISON)
    except (OSError, ValidationError) as error:
        message = (
            f"{folder / COMPARISON}: not the record of a comparison" if isinstance(error, ValueError) else str(error)
        )
        unreadable = _entry(folder, State.UNREADABLE, Kind.COMPARISON)
        return unreadable.model_copy(update={"reason": message})
    named = {"outcome": found.outcome, "reason": found.reason, "provider": found.provider or None}
    named["plan"] = default_name(Path(found.plan)) if found.plan else None
    return _entry(folder, State.ENDED, Kind.COMPARISON).model_copy(update=named)


def _exploration(path: Path) -> ExplorationEntry:
    try:
        found = _Judged.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return ExplorationEntry(folder=path.parent.name, file=path.name, cycle="", judged=0, broken=0, outcome=None)
    return ExplorationEntry(
        folder=path.parent.name,
        file=path.name,
        cycle=found.cycle,
        judged=found.judged,
        broken=found.broken,
        outcome=found.outcome,
        counts=found.counts,
    )
