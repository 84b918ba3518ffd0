from dataclasses import replace
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash import exhaustive
from raidproof.crash.sampler import Policy
from raidproof.run import crash_states as module
from raidproof.run import exploration_record
from raidproof.run.crash_states import Options, begun_of, chosen, resumed
from raidproof.run.exploration_record import NOT_SCANNED, SAMPLE, SCANNED, WHOLE, dry_run, limits
from raidproof.run.source import Source, source_of
from raidproof.storage.stack import StackSpec
from tests.crash.stored import store_run


def test_a_dry_run_counts_what_would_be_checked(tmp_path: Path) -> None:
    source = source_of(store_run(tmp_path / "run"))
    for options in (Options(), Options(all_losses=0), Options(all_losses=2), Options(all_losses=2, epochs=(1, 2))):
        record = dry_run(source, options)
        assert record.candidates == len(chosen(source, options).order) > 0
        assert (record.all_losses is None) is (options.all_losses is None)
        assert record.refused is None


def test_a_dry_run_counts_also_what_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (exploration_record, exhaustive):
        monkeypatch.setattr(one, "MOST_STATES", 20)
    source = source_of(store_run(tmp_path / "run"))
    record = dry_run(source, Options(all_losses=3))
    assert record.candidates > 20
    assert record.refused is not None
    assert record.refused.startswith("choose --all-losses ")
    with pytest.raises(RequestError, match=rf"^{record.candidates} crash states") as refused:
        chosen(source, Options(all_losses=3))
    assert refused.value.remedy == record.refused


def test_the_limits_name_what_was_not_tried() -> None:
    assert SAMPLE in limits(Options(), scans=True)
    assert SAMPLE not in limits(Options(all_losses=2), scans=True)


def test_a_journal_of_the_uniform_order_keeps_its_order(tmp_path: Path) -> None:
    source, journal = source_of(store_run(tmp_path / "run")), tmp_path / "states.jsonl"
    options = Options(resume=True)
    older = begun_of(source, Options(uniform=True)).model_dump_json(exclude={"uniform", "all_losses", "epochs"})
    journal.write_text(older + "\n")
    assert resumed(options, journal).uniform
    assert not resumed(Options(), journal).uniform
    journal.write_text(begun_of(source, Options()).model_dump_json() + "\n")
    assert not resumed(options, journal).uniform
    assert resumed(Options(resume=True, uniform=True), journal).uniform


def test_a_server_that_cannot_be_scanned_is_a_limit() -> None:
    assert NOT_SCANNED in limits(Options(), scans=False)
    assert SCANNED not in limits(Options(), scans=False)
    assert SCANNED in limits(Options(), scans=True)


def test_an_exploration_of_an_encrypted_stack_says_that_no_request_is_torn() -> None:
    assert WHOLE in limits(Options(), scans=True, encrypts=True)
    assert WHOLE not in limits(Options(), scans=True)


@pytest.mark.parametrize(
    ("array", "volume", "torn"),
    [
        ({}, "direct", True),
        ({}, "crypt", False),
        ({"member_layer": "crypt"}, "direct", False),
        ({"member_layer": "integrity"}, "direct", True),
    ],
)
def test_no_request_of_an_encrypted_stack_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: dict[str, str], volume: str, torn: bool
) -> None:
    units: list[int] = []
    monkeypatch.setattr(module, "Choices", lambda *_, unit, **__: units.append(unit))
    stack = StackSpec.model_validate({"array": {"members": ["a", "b", "c"], **array}, "volume": volume})
    chosen(replace(source_of(store_run(tmp_path / "run")), stack=stack), Options())
    assert [unit == Options().tear for unit in units] == [torn]


@pytest.fixture
def solo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A stored crash test all of whose operations are solo operations."""
    monkeypatch.setattr(module, "solo_operations", lambda history, _seen: history.operations)
    return source_of(store_run(tmp_path / "run"))


def policies(source: Source, options: Options) -> set[Policy]:
    return {one.policy for one in chosen(source, options).order}


def test_a_sample_has_directed_states_and_others(solo: Source) -> None:
    assert policies(solo, Options()) > {Policy.DIRECTED, Policy.DROP_ALL}
    assert policies(solo, Options(at_replies=True)) == {Policy.DIRECTED}, "each reply is one to a solo operation"
    assert policies(solo, Options(only_directed=True)) == {Policy.DIRECTED}


def test_a_crash_test_without_solo_operations_has_no_directed_states(tmp_path: Path) -> None:
    assert Policy.DIRECTED not in policies(source_of(store_run(tmp_path / "run")), Options())


def test_replies_to_other_operations_have_states_if_their_data_were_volatile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(store_run(tmp_path / "run"))
    first, *others = source.oracle.history.acknowledged(source.recording.end_ns)
    monkeypatch.setattr(module, "solo_operations", lambda *_: [first])
    of_solo = chosen(source, Options(only_directed=True)).order[0].cut
    late = {others[0]: 2e6, others[-1]: 9e6}
    monkeypatch.setattr(module, "late_ns", lambda *_: late)
    cuts = [one.cut for one in chosen(source, Options(only_directed=True)).order]
    expected = [source.recording.place_of_reply(one.promised_ns or 0) for one in (others[-1], others[0])]
    assert cuts[:2] == expected, "those that were volatile longest come first"
    assert of_solo in cuts


def test_a_sample_for_a_share_has_no_directed_states(solo: Source) -> None:
    assert Policy.DIRECTED not in policies(solo, Options(uniform=True))
    assert Policy.DIRECTED not in policies(replace(solo, lost_member="disk1"), Options())
    assert Policy.DIRECTED not in policies(solo, Options(all_losses=1))
