"""The two sides of a comparison: their settings, the order of their repetitions, and errors that end both."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.cli.main import main
from raidproof.core.errors import RequestError, RequirementMissing, RigError, Status
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.core.waiting import unwinding_on_signals, wall_clock
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.forecast import Forecast
from raidproof.plan.plan import read_plan
from raidproof.record import RunRecord, RunStore
from raidproof.record.cell import Repetition
from raidproof.record.environment import Environment, MachineRecord
from raidproof.run.comparison import Effort, announce, in_turn, measure, side_of, with_enough_repeats
from raidproof.run.plan_runner import PlanRunner
from raidproof.run.repetition import new_record

PLAN = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"


def test_a_setting_is_for_all_machines_or_for_a_role() -> None:
    common = Platform(server=SoftwareSpec(image="debian/trixie"), clients=SoftwareSpec(kernel="debian/bookworm"))
    side = side_of(["kernel=debian/sid", "clients.image=debian/bookworm", "server.nfs-utils=a.b.deb"], common)
    assert side.server == SoftwareSpec(kernel="debian/sid", image="debian/trixie", packages=("a.b.deb",))
    assert side.clients == SoftwareSpec(kernel="debian/sid", image="debian/bookworm")


def test_a_setting_of_a_role_overrides_a_common_one() -> None:
    side = side_of(["server.kernel=debian/sid", "kernel=debian/trixie"], Platform())
    assert (side.server.kernel, side.clients.kernel) == ("debian/sid", "debian/trixie")


def test_settings_that_a_side_omits_are_common() -> None:
    common = Platform(provider="qemu", server=SoftwareSpec(kernel="debian/sid", packages=("a.deb",)))
    assert side_of([], common) == common
    assert side_of(["mdadm=b.deb"], common).server.packages == ("a.deb", "b.deb")


def test_a_dot_in_a_path_is_no_role() -> None:
    assert side_of(["kernel=./out/linux-6.12.deb"], Platform()).server.kernel == "./out/linux-6.12.deb"


@pytest.mark.parametrize("words", [["kernel"], ["kernle=debian/sid"], ["server.kernel=a", "server.kernel=b"]])
def test_what_no_side_can_be_is_refused(words: list[str]) -> None:
    with pytest.raises(RequestError):
        side_of(words, Platform())


def test_machines_of_an_inventory_have_one_side_at_a_time() -> None:
    with pytest.raises(RequestError, match="before and after the update"):
        side_of([], Platform(provider="hosts", inventory="lab.toml"))


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_a_cell_begins_on_the_other_side_in_the_next_round(round_: int, index: int) -> None:
    assert sorted(in_turn(round_, index)) == [0, 1]
    assert in_turn(round_, index) == tuple(reversed(in_turn(round_ + 1, index)))


def tiny(**run: Any) -> Matrix:
    document = {"axes": {"level": [5, 10]}, "workload": {"tool": "dd"}, "run": run}
    return matrix_of(read_plan(document, source="here.toml", name="here"))


def test_both_sides_and_what_they_take_are_announced() -> None:
    said = announce(tiny(), side_of(["kernel=debian/sid"], Platform()), Platform())
    assert said[:2] == [
        "base: server kernel=debian/sid; clients kernel=debian/sid",
        "new: server the default; clients the default",
    ]
    assert "3.0 GiB of memory" in said[-1]
    assert any("A/A" in line for line in announce(tiny(), Platform(), Platform()))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--new=server.kernel=debian/sid", "--kernel=debian/trixie"], Status.PASS, "new: server kernel=debian/sid; "),
        ([], Status.BAD_REQUEST, "neither --base nor --new is given"),
        (["--new=kernel=debian/trixi"], Status.BAD_REQUEST, "did you mean 'debian/trixie'?"),
        (["--base=kernle=debian/trixie"], Status.BAD_REQUEST, "did you mean 'kernel'?"),
        (["--base=kernel=debian/sid", "--new=kernel=debian/sid"], Status.PASS, "an A/A run"),
    ],
)
def test_a_dry_run_prints_the_plan(
    words: list[str], status: Status, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with unwinding_on_signals():
        assert main(["ab", str(PLAN), "--dry-run", "--provider=uml", *words]) == status
    out = capfd.readouterr()
    assert said in out.out + out.err


@dataclass
class FakeExecution:
    """A fake that boots nothing and records its requests."""

    side: str
    told: list[str]
    kernel: str
    matrix: Matrix = field(default_factory=lambda: tiny(repeats=2, cut="power"))
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.plan = self.matrix.plan
        self.cells = {cell.name: cell for cell in self.matrix.cells}
        topology = {"kernel": self.side}
        record = RunRecord(run=self.side, started=wall_clock(), command=[], topology=topology)
        self.current_run = SimpleNamespace(record=record)
        self.forecast = Forecast()

    def begin(self) -> list[tuple[int, str]]:
        self.told.append(f"{self.side} begins")
        if self.fails is not None:
            raise self.fails
        machine = MachineRecord(
            name="server", role="server", asked="", kernel=self.kernel, packages={}, cpus=1, numa_nodes=1
        )
        self.current_run.record.environment = Environment(
            raidproof="1", provider="uml", host_kernel="", host_cpu="", host_cpus=2, host_tools={},
            machines=[machine], notes=[], cannot_prove=[],
        )  # fmt: skip
        return [(round_, name) for round_ in (1, 2) for name in self.cells]

    def turn(self, round_: int, name: str, *, who: str, left: str) -> None:
        assert who == f"{self.side}, "
        self.told.append(f"{self.side} {round_} {name}")

    def add(self, round_: int, name: str) -> None:
        self.told.append(f"{self.side} adds {round_} {name}")

    def finish(self) -> None:
        self.told.append(f"{self.side} cuts")


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.run.comparison.step", lambda _said: None)


def executions(*, kernels: tuple[str, str] = ("6.1", "6.12")) -> tuple[list[FakeExecution], list[str]]:
    told: list[str] = []
    return [FakeExecution(side, told, kernel) for side, kernel in zip(("base", "new"), kernels, strict=True)], told


@pytest.mark.usefixtures("_quiet")
def test_both_sides_make_a_repetition_before_the_next() -> None:
    sides, told = executions()
    measure(cast("list[PlanRunner]", sides))
    assert told == [
        "base begins", "new begins",
        "base 1 level=5", "new 1 level=5", "new 1 level=10", "base 1 level=10",
        "new 2 level=5", "base 2 level=5", "base 2 level=10", "new 2 level=10",
        "base cuts", "new cuts",
    ]  # fmt: skip


@pytest.mark.usefixtures("_quiet")
def test_only_undecided_cells_get_more_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    open_cells = [["level=10"], []]
    monkeypatch.setattr("raidproof.run.comparison.undecided", lambda *_: open_cells.pop(0))
    sides, told = executions()
    measure(cast("list[PlanRunner]", sides), Effort(most_repeats=20))
    assert told[10:-2] == [
        "base adds 3 level=10", "new adds 3 level=10", "new 3 level=10", "base 3 level=10",
    ]  # fmt: skip
    assert open_cells == []


@pytest.mark.usefixtures("_quiet")
def test_no_repetition_is_added_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.run.comparison.undecided", lambda *_: ["level=10"])
    sides, told = executions()
    measure(cast("list[PlanRunner]", sides), Effort(most_repeats=20, minutes=0))
    assert not any("adds" in one for one in told)


def test_the_default_number_of_repetitions_is_enough_for_the_test() -> None:
    assert with_enough_repeats(tiny()).plan.run.repeats == 5
    assert with_enough_repeats(tiny(), most=30).plan.run.repeats == 6
    assert with_enough_repeats(tiny(repeats=2)).plan.run.repeats == 2
    said = announce(tiny(repeats=2), Platform(), Platform())
    assert any("2 repetitions of each side can find no change, however great" in line for line in said)


def test_the_variation_comes_from_earlier_runs_of_the_plan(tmp_path: Path) -> None:
    matrix = tiny(repeats=10)
    assumed, none = announce(matrix, Platform(), Platform(), Effort(), tmp_path)[3:5]
    assert "find a change by 10.2% in 95 % of cases (at a variation of 5.0%, assumed)" in assumed
    assert none.startswith("A/B")
    for name in ("here-base", "here", "elsewhere-here", "here-other"):
        record = RunRecord(run=name, started=wall_clock(), command=[], topology={})
        record.cells = [new_record(cell) for cell in matrix.cells]
        for cell, spread in zip(record.cells, (0.1, 1.0), strict=True):
            cell.repeats = [Repetition(round=place, value=100 + spread * place) for place in range(1, 6)]
        RunStore.create(tmp_path, name).save(record)
    measured = announce(matrix, Platform(), Platform(), Effort(), tmp_path)[3]
    assert measured.endswith("measured in 2 earlier runs)")


@pytest.mark.usefixtures("_quiet")
def test_equal_sides_are_not_measured() -> None:
    sides, told = executions(kernels=("6.1", "6.1"))
    measure(cast("list[PlanRunner]", sides))
    assert told == ["base begins", "new begins"]


@pytest.mark.parametrize("error", [RigError("it does not boot"), RequirementMissing("no fio", remedy="get it")])
def test_what_goes_wrong_names_its_side(error: Exception) -> None:
    sides, told = executions()
    sides[1].fails = error
    with pytest.raises(type(error), match=r"^new: ") as raised:
        measure(cast("list[PlanRunner]", sides))
    assert str(error) in str(raised.value)
    assert told == ["base begins", "new begins"]
