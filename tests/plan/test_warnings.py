from io import StringIO

from rich.console import Console

from raidproof.core.topology import Platform
from raidproof.plan.cell import Matrix
from raidproof.plan.dry_run import dry_run
from raidproof.plan.forecast import describe
from raidproof.plan.warnings import Groups, warnings_of
from tests.plan.conftest import Make

DISKS = {"disks": {"count": 4, "profile": "hdd-7200-sata", "size": "1GiB"}}
AXES = {
    "level": [5, 10],
    "chunk": ["16KiB", "64KiB"],
    "wsize": ["32KiB", "64KiB", "1MiB"],
    "export": ["sync", "async"],
    "clients": [1, 2],
}


def many(make: Make) -> Matrix:
    return make(AXES, hardware=DISKS | {"clients": 2}, workload=[{"tool": "fio", "size": "2GiB"}])


def test_a_rule_is_shown_once_with_its_group_of_cells(make: Make) -> None:
    matrix = many(make)
    warned = {one.rule: one for one in warnings_of(matrix)}
    assert len(matrix.cells) == 48
    assert warned["async-export"].group == "export=async: 24 of 48 cells"
    assert warned["write-hole"].group == "level=5: 24 of 48 cells"
    assert len(warned["async-export"].cells) == 24
    small = warned["small-wsize"]
    # 16 KiB: stripes of 48 KiB; 64 KiB: of 192 KiB: no two axes describe these cells.
    assert small.group == f"12 of 48 cells, for example {small.cells[0]}"


def test_a_group_of_two_axes_and_the_group_of_all(make: Make) -> None:
    matrix = make({"level": [5, 10], "wsize": ["32KiB", "1MiB"]}, hardware=DISKS, fixed={"chunk": "64KiB"})
    warned = {one.rule: one.group for one in warnings_of(matrix)}
    assert warned["small-wsize"] == "level=5, wsize=32KiB: 1 of 4 cells"
    assert warned["log-between-data"] == "all cells"
    assert Groups(matrix).of(matrix.cells[:1]) == "level=5, wsize=32KiB: 1 of 4 cells"


def test_a_safe_plan_has_no_warning(make: Make) -> None:
    disks = {"disks": {"count": 4, "profile": "nvme-plp", "size": "1GiB"}}
    assert warnings_of(make({"level": [10]}, hardware=disks)) == ()


def text_of(matrix: Matrix, *, in_full: bool) -> str:
    console = Console(width=300, file=StringIO(), record=True)
    console.print(describe(matrix, in_full=in_full))
    return console.export_text()


def test_the_start_of_a_run_has_the_warnings_and_a_dry_run_also_sources_and_ceilings(make: Make) -> None:
    matrix = many(make)
    short, full = text_of(matrix, in_full=False), text_of(matrix, in_full=True)
    assert short.count("warning (loss) async-export [export=async: 24 of 48 cells]") == 1
    assert "source: exports(5), async" not in short
    assert "source: exports(5), async" in full
    assert "ceiling" not in short
    assert "limited by" in full


def test_disks_without_latency_have_no_ceiling(make: Make) -> None:
    matrix = make({"level": [5, 10]})
    assert "limited by" not in text_of(matrix, in_full=True)
    assert all(cell.ceiling is None for cell in dry_run(matrix, Platform()).cells)


def test_the_record_of_a_dry_run_has_ceilings_and_warnings(make: Make) -> None:
    record = dry_run(many(make), Platform())
    assert all(cell.ceiling is not None and cell.ceiling.mb_s > 0 for cell in record.cells)
    assert record.warnings[0].rule == "async-export"
