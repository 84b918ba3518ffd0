"""A cluster in this process, and a plan whose repetitions and power cuts are made up."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, cast

import pytest
from distributed import Client, LocalCluster, get_worker

from raidproof.cluster.connection import require_dask
from raidproof.cluster.plans import OnWorkers, carry_out_plan, job_of
from raidproof.cluster.round_pool import RoundPool
from raidproof.cluster.rounds import ALONE, Made, PlanJob, Request
from raidproof.core.topology import Topology
from raidproof.core.waiting import wall_clock
from raidproof.fault import FaultEffects
from raidproof.plan.cell import Cell, Matrix, matrix_of
from raidproof.plan.plan import Plan, read_plan
from raidproof.record import CrashTestRecord, RunRecord, RunStore
from raidproof.record.cell import CellRecord, PlanRecord, Repetition
from raidproof.record.environment import Environment, MachineRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.plan_runner import PlanRunner, record_of
from raidproof.run.run import Run
from raidproof.verdict.run import conclude_run


def tiny(**run: Any) -> Matrix:
    document = {
        "hardware": {"disks": {"count": 4, "size": "512MiB"}},
        "axes": {"level": [5, 10]},
        "workload": {"tool": "dd"},
        "run": run,
    }
    return matrix_of(read_plan(document, source="here.toml", name="here"))


class MadeUpLab:
    server = "server"
    clients = ("client1",)


class MadeUpDeployer:
    def __init__(self, lab: MadeUpLab) -> None:
        self.lab = lab

    def teardown(self) -> None:
        pass

    def require(self, machine: str, program: str) -> None:
        pass


class MadeUpRun:
    """A run that boots nothing."""

    kernels: dict[str, str] = {}  # noqa: RUF012
    """The kernel that machines run, by the name of the run; the name by default."""
    control_ends = Outcome.PASS

    def __init__(self, name: str, results: Path, topology: Topology) -> None:
        self.store, self.topology = RunStore(results / name), topology
        self.store.path.mkdir(parents=True, exist_ok=True)
        self.kernel = self.kernels.get(name, name)
        self.record = (
            self.store.load()
            if (self.store.path / "report.json").exists()
            else RunRecord(run=name, started=wall_clock(), command=[], topology=topology.model_dump(mode="json"))
        )
        self._lab: MadeUpLab | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        (self.store.path / "raidproof.log").write_text("what happened")
        conclude_run(self.record)

    @property
    def lab(self) -> MadeUpLab:
        if self._lab is None:
            self._lab = MadeUpLab()
            (self.store.path / "lab1").mkdir(exist_ok=True)
            (self.store.path / "lab1" / "console.server.log").write_text("booted")
            machine = MachineRecord(
                name="server", role="server", asked="", kernel=self.kernel, packages={}, cpus=1, numa_nodes=1
            )
            self.record.environment = Environment(
                raidproof="1", provider="uml", host_kernel="", host_cpu="", host_cpus=2, host_tools={},
                machines=[machine], notes=[], cannot_prove=[],
            )  # fmt: skip
        return self._lab

    def discard_lab(self) -> None:
        self._lab = None

    def cycle(self, spec: CrashTestSpec) -> CrashTestRecord:
        folder = self.store.path / spec.name
        folder.mkdir()
        (folder / "write.log").write_bytes(spec.title.encode())
        one = CrashTestRecord(
            name=spec.name, title=spec.title, asked={}, cache_mode="volatile", fault="power-cut", seed=1,
            effects=FaultEffects(), outcome=self.control_ends if spec.control else Outcome.PASS,
            control=spec.control, reason="so",
        )  # fmt: skip
        self.record.cycles.append(one)
        return one


class House:
    """What the workers of all tests do: how long it takes, and what happens on which worker."""

    happens: Callable[[Cell, Repetition], None]
    speeds: dict[str, float]
    made: list[tuple[str, int, str]]
    """Worker, round and cell of each repetition."""

    def __init__(self) -> None:
        self.happens = lambda _cell, _repeat: None
        self.speeds = {}
        self.made = []

    def repeat(
        self, _deployer: object, _plan: Plan, cell: Cell, record: CellRecord, repeat: Repetition, directory: Path
    ) -> None:
        worker = this_worker()
        self.made.append((worker, repeat.round, cell.name))
        (directory / "tool.client1.txt").write_text(f"{cell.name}, round {repeat.round}")
        repeat.files = {"tool client1": f"cells/{directory.name}/tool.client1.txt"}
        repeat.value = (100.0 + 10 * cell.index + repeat.round / 10) * self.speeds.get(worker, 1.0)
        repeat.timed_s, record.unit, record.effective = 2.0, "write_mb_s", {"array": {"level": "raid5"}}
        self.happens(cell, repeat)


def this_worker() -> str:
    """Return the name of the worker that executes this; empty text outside of a cluster."""
    try:
        return str(get_worker().name)
    except ValueError:
        return ""


def without_time(store: RunStore) -> Any:
    """Return the record of a run without times and workers."""
    record = store.load().model_dump(mode="json")
    for cell in record["cells"]:
        for repeat in cell["repeats"]:
            del repeat["worker"], repeat["visit_s"]
    for name in ("started", "environment"):
        del record[name]
    for name in ("workers", "visits_s", "path"):
        del record["plan"][name]
    return record


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    made_up = House()
    monkeypatch.setattr("raidproof.run.plan_runner.run_repetition", made_up.repeat)
    monkeypatch.setattr("raidproof.run.plan_runner.StackDeployer", MadeUpDeployer)
    monkeypatch.setattr("raidproof.cluster.rounds.require_host", lambda: None)
    monkeypatch.setattr("raidproof.cluster.rounds.software_digest", lambda _: "0")
    monkeypatch.setattr("raidproof.cluster.plans.software_digest", lambda _: "0")
    monkeypatch.setattr("raidproof.cluster.rounds.Run", MadeUpRun)
    monkeypatch.setattr("raidproof.cluster.round_pool.POLL_S", 0.2)
    monkeypatch.setattr("raidproof.cluster.workers.POLL_S", 0.2)
    return made_up


def maker(job: PlanJob, request: Request, wanted: Callable[[], bool]) -> Made:
    """Carry out a request in this process."""
    assert wanted()
    with TemporaryDirectory() as folder:
        return job.carried_out(request, Path(folder))


def runner_of(matrix: Matrix, folder: Path, side: str = "run") -> PlanRunner:
    """Return the client's runner, of a new run or of a stored one."""
    run = MadeUpRun(side, folder, matrix.plan.hardware.topology())
    plan = folder / "here.toml"
    plan.write_text("the plan's own words")
    if run.record.plan is None:
        run.record.plan = record_of(matrix, plan)
    return PlanRunner(matrix, cast("Run", run))


def run_on(client: Any, matrix: Matrix, folder: Path, doing: Any = maker, *, wait_s: float = 20.0) -> PlanRunner:
    """Run a plan on a cluster; None as client: without one."""
    runner = runner_of(matrix, folder)
    if client is None:
        runner.run()
    else:
        named = {ALONE: runner}
        with RoundPool[Request, Made](client, job_of(named), doing, wait_s=wait_s) as pool:
            carry_out_plan(OnWorkers(pool, named), runner)
    return runner


def plan_of(runner: PlanRunner) -> PlanRecord:
    return runner.record


def measured_by(runner: PlanRunner) -> Sequence[str | None]:
    return [repeat.worker for cell in runner.records.values() for repeat in cell.repeats]


@contextmanager
def labs(count: int) -> Iterator[Any]:
    """Return the client of a cluster with so many workers in this process, each with a slot for a lab."""
    require_dask()
    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=count,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            resources={"lab": 1.0},
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,  # type: ignore[no-untyped-call]
    ):
        yield client
