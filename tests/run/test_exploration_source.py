from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.record import RunStore
from raidproof.run.source import cycle_of, source_of
from raidproof.workload.history import STAMP
from tests.crash.made_up import told
from tests.crash.stored import CYCLE, store_run


def test_a_stored_cycle_is_all_that_an_exploration_needs(tmp_path: Path) -> None:
    source = source_of(store_run(tmp_path / "run"))
    assert source.cycle.name == CYCLE
    assert [one[:8] for one in source.oracle.history.operations] == [one[:8] for one in told().operations]
    assert source.recording.instant_ns(source.first) >= source.oracle.created_ns
    assert source.stack.array.device_paths == ("/dev/md0",)
    assert source.scan_config["workers"] == source.cycle.workers
    assert source.log == tmp_path / "run" / CYCLE / "write.log"


def test_each_checker_has_a_folder_for_its_consoles(tmp_path: Path) -> None:
    source = source_of(store_run(tmp_path / "run"))
    for number in (1, 2, 2):
        source.checker(number, logs=tmp_path / "run" / "explore" / "logs")
    assert {one.name for one in (tmp_path / "run" / "explore" / "logs").iterdir()} == {"checker1", "checker2"}


def test_a_dirty_degraded_array_is_started_only_if_that_is_asked(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    assert not source_of(store).starts_dirty
    assert source_of(store, starts_dirty=True).starts_dirty


def test_a_lost_member_is_blank_and_the_array_may_lack_it(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    whole, source = source_of(store), source_of(store, lost_member="disk1")
    assert (whole.recording.lost, whole.oracle.incomplete_ns) == (frozenset(), None)
    number = [one.serial for one in source.recording.members].index("disk1")
    assert (source.recording.lost, source.oracle.incomplete_ns) == (frozenset({number}), 0)
    assert source.stem == f"{whole.stem}-without-disk1"


def test_a_disk_of_no_array_cannot_be_lost(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="disk9"):
        source_of(store_run(tmp_path / "run"), lost_member="disk9")


@pytest.mark.parametrize(
    ("during", "since"), [([], 4000), ([{"fault": "degraded", "target": "disk1", "proof": ""}], 0)]
)
def test_a_fault_explains_nothing_that_came_before_it(
    tmp_path: Path, during: list[dict[str, str]], since: int
) -> None:
    run = store_run(tmp_path / "run", fault_begun_ns=4000, explanation="the disks: rot", during=during)
    assert source_of(run).oracle.explained_ns == since


def test_each_cycle_reads_back_its_own_blocks(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run", "a", "b")
    assert source_of(store, "a").scan_config["seed"] != source_of(store, "b").scan_config["seed"]


def test_of_several_cycles_one_is_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"can be explored \(choose one with --cycle: a, b\)"):
        source_of(store_run(tmp_path / "run", "a", "b"))


def test_the_only_cycle_that_can_be_explored_is_chosen(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run", "a", "b")
    (tmp_path / "run" / "a" / "write.log").unlink()
    assert source_of(store).cycle.name == "b"


def test_an_unknown_cycle_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no crash test 'maid-up' \(did you mean 'made-up'"):
        source_of(store_run(tmp_path / "run"), "maid-up")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"requirement_missing": "no qemu"}, "did not take place: no qemu"),
        ({"not_effective": "wsize"}, "did not take place: wsize"),
        ({"files": {}}, "has no write log"),
        ({"files": {"write log": "made-up/write.log"}}, "has no history"),
        ({"files": {"write log": "gone", "history": "made-up/history"}}, "its write log is missing: gone"),
        ({"workers": []}, "its clients did not begin"),
        ({"ledger_begun_ns": None}, "its clients did not begin"),
    ],
)
@pytest.mark.parametrize("name", [None, CYCLE])
def test_the_reason_against_an_exploration_is_reported(
    tmp_path: Path, changes: dict[str, Any], reason: str, name: str | None
) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        source_of(store_run(tmp_path / "run", **changes), name)
    assert refused.value.remedy


def with_topology(store: RunStore, **changes: Any) -> RunStore:
    record = store.load()
    record.topology |= changes
    store.save(record)
    return store


@pytest.mark.parametrize("provider", ["hosts", "vagrant"])
@pytest.mark.parametrize("changes", [{}, {"files": {}}])
def test_not_every_provider_can_switch_disks(tmp_path: Path, provider: str, changes: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=rf"provider {provider}: .* \(use provider uml or qemu\)"):
        source_of(with_topology(store_run(tmp_path / "run", **changes), provider=provider))


def test_a_log_of_other_disks_is_refused(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    disks = [{**disk, "serial": f"other{number}"} for number, disk in enumerate(store.load().topology["disks"])]
    with pytest.raises(RequestError, match=r"does not have the run's disks \(other0, other1\) \(.*record"):
        source_of(with_topology(store, disks=disks))


def test_a_log_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    store = store_run(tmp_path / "run")
    log = tmp_path / "run" / CYCLE / "write.log"
    log.write_bytes(log.read_bytes()[:-100])
    with pytest.raises(RequestError, match=r"truncated after .* \(the run was probably killed"):
        source_of(store)


@pytest.mark.parametrize(("name", "data"), [("write.log", b"?" * 64), ("history", STAMP.pack(0, 20) + b"?" * 20)])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    store = store_run(tmp_path / "run")
    (tmp_path / "run" / CYCLE / name).write_bytes(data)
    with pytest.raises(RequestError, match=r"made-up cannot be explored.* \(record a new run\)"):
        source_of(store)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("sync", "sync"),
        ("2", "async"),
        ("async export", "async"),
        ("ASYNC export", "async"),
        ("1", "1"),  # a name, not the number
    ],
)
def test_a_crash_test_is_named_by_name_number_or_title(tmp_path: Path, said: str, name: str) -> None:
    run = store_run(tmp_path / "run").load()
    titles = {"sync": "sync export", "async": "async export", "1": "twice", "2-again": "twice"}
    run.cycles = [run.cycles[0].model_copy(update={"name": one, "title": title}) for one, title in titles.items()]
    assert cycle_of(run, said).name == name
    with pytest.raises(RequestError, match="no crash test 'syn'") as unknown:
        cycle_of(run, "syn")
    assert "sync" in str(unknown.value.remedy)
    with pytest.raises(RequestError, match="several crash tests 'twice'"):
        cycle_of(run, "twice")
