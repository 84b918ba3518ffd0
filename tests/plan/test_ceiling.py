from raidproof.plan.ceiling import ceiling_of, ceilings_of, hardware_of
from tests.plan.conftest import Make

DISKS = {"disks": {"count": 4, "profile": "hdd-7200-sata", "size": "1GiB"}}
FSYNC = [{"tool": "fio", "preset": "fsync-heavy"}]


def test_each_cell_has_the_ceiling_of_its_settings(make: Make) -> None:
    matrix = make({"level": [5, 10], "export": ["sync", "async"]}, hardware=DISKS, workload=FSYNC)
    ceilings = ceilings_of(matrix)
    assert list(ceilings) == [cell.name for cell in matrix.cells]
    small, mirrored = ceilings["level=5 export=sync"], ceilings["level=10 export=sync"]
    assert small is not None
    assert mirrored is not None
    assert small.limit == "sync latency"
    assert small.mb_s < mirrored.mb_s
    topology = matrix.plan.hardware.topology()
    assert ceiling_of(topology, matrix.cells[0]) == small
    assert ceiling_of(topology, matrix.cells[0], hardware=hardware_of(topology)) == small


def test_a_workload_on_one_disk_and_disks_without_latency_have_none(make: Make) -> None:
    on_disk = [{"tool": "fio", "rw": "read", "on": "disk0"}]
    assert set(ceilings_of(make({"level": [5]}, hardware=DISKS, workload=on_disk)).values()) == {None}
    assert set(ceilings_of(make({"level": [5]}, workload=FSYNC)).values()) == {None}
