"""A made-up run as a run store keeps it: record, history and write log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from raidproof.core.topology import server_and_clients
from raidproof.core.waiting import wall_clock
from raidproof.crash.checker import Checker, Held
from raidproof.guest.ledger_format import ACKNOWLEDGE, FRAME, ISSUE, KINDS
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.run.source import Source
from raidproof.workload.history import Recorder
from tests.crash.conftest import write_log
from tests.crash.made_up import WORKER, FakeChecker, told, written

CYCLE = "made-up"
LIES_FROM = 4


def store_run(
    path: Path, *names: str, of_cycle: dict[str, Any] | None = None, lies_from: int = LIES_FROM, **changes: Any
) -> RunStore:
    """Store a run whose disk lies from its fourth flush on (``lies_from``), with a cycle of each name.

    ``changes``: fields of the run's record if it has them, else of each cycle, as is ``of_cycle``.
    """
    store = RunStore(path)
    of_run = {name: changes.pop(name) for name in ("ended", "outcome") if name in changes}
    changes |= of_cycle or {}
    topology = server_and_clients(clients=1, disks=2)
    record = RunRecord(
        run=path.name,
        started=wall_clock(),
        command=["./raidproof"],
        topology=topology.model_dump(mode="json"),
        **of_run,
    )
    for name in names or (CYCLE,):
        folder = store.directory(name)
        write_log(folder / "write.log", written(lies_from=lies_from))
        _write_history(folder / "history")
        asked = stack_of("1").model_dump(mode="json")
        fields = {
            "name": name, "title": f"cycle {name}", "asked": asked, "cache_mode": "volatile", "fault": "power-cut",
            "seed": 1, "workload": {"ledger": {"seed": 7}}, "workers": [WORKER.model_dump()], "ledger_begun_ns": 2500,
            "files": {"write_log": f"{name}/write.log", "history": f"{name}/history"},
        }  # fmt: skip
        record.cycles.append(CrashTestRecord(**{**fields, **changes}))
    store.save(record)
    return store


def _write_history(path: Path) -> None:
    recorder = Recorder(path)
    for one in told().operations:
        words = (KINDS.index(one.kind), one.worker, one.sequence, one.place, one.generation, 0)
        recorder.add(0, one.issued_ns, FRAME.pack(ISSUE, *words, one.issued_ns))
        recorder.add(0, one.ended_ns or 0, FRAME.pack(ACKNOWLEDGE, *words, one.ended_ns))
    recorder.close()


class HoldingChecker(FakeChecker):
    """Leaves a state in no lab at all."""

    def hold(self, _patch: object) -> Held:
        return Held("a9e7f033", (["mdadm", "--assemble", "/dev/md0"], ["mount", "/dev/md0", "/srv/a b"]))


class OnFakes(Source):
    """Its checkers are no machines."""

    @contextmanager
    def checker(self, number: int, *, logs: Path) -> Iterator[Checker]:
        yield cast("Checker", HoldingChecker())

    @classmethod
    def of(cls, source: Source) -> "OnFakes":
        return cls(**vars(source))
