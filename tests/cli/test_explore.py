import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from raidproof.cli.main import main
from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import Status
from raidproof.core.topology import SoftwareSpec
from raidproof.core.waiting import wall_clock
from raidproof.crash.exploration import Budget
from raidproof.crash.states import CrashState
from raidproof.record.exploration import ExplorationRecord, Possible, StateRecord
from raidproof.record.outcome import Outcome
from raidproof.run import source as module
from raidproof.run.crash_states import Options
from raidproof.run.source import Source
from tests.crash.made_up import ROUNDS
from tests.crash.stored import OnFakes, store_run

Explore = Callable[..., int]
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"


def record_of(outcome: Outcome) -> ExplorationRecord:
    return ExplorationRecord(
        run="run", cycle="made-up", title="made-up", started=wall_clock(), log="write.log", log_digest="0", seed=1,
        tear=512, possible=Possible(log10=1.0), outcome=outcome, reason="so it ended",
    )  # fmt: skip


@pytest.fixture
def explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Explore:
    """Run the command on a stored run, on a host that has all that it needs."""
    monkeypatch.setattr("raidproof.run.doctor.require_host", lambda: None)
    monkeypatch.setattr("raidproof.provider.registry.prepare", lambda _: None)
    store = store_run(tmp_path / "run")
    return lambda *words: main(["explore", str(store.path), *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Take note of what was asked, and explore nothing."""
    options: list[Options] = []

    def explore_cycle(_source: Source, one: Options) -> tuple[ExplorationRecord, Path]:
        options.append(one)
        return record_of(Outcome.PASS), Path("page.html")

    monkeypatch.setattr("raidproof.run.exploration.explore_cycle", explore_cycle)
    return options


@pytest.mark.parametrize("outcome", Outcome)
def test_it_ends_as_the_exploration_did(
    explore: Explore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    ended = record_of(outcome), Path("page.html")
    monkeypatch.setattr("raidproof.run.exploration.explore_cycle", lambda *_: ended)
    assert explore() == Status[outcome.name]
    said = capsys.readouterr().out
    assert "so it ended" in said
    assert "report: page.html" in said


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ((), Budget(1000, None)),
        (("--states", "7"), Budget(7, None)),
        (("--minutes", "2"), Budget(None, 2.0)),
        (("--states", "7", "--minutes", "2"), Budget(7, 2.0)),
    ],
)
def test_how_far_it_goes(explore: Explore, asked: list[Options], words: tuple[str, ...], budget: Budget) -> None:
    assert explore(*words) == 0
    assert [one.budget for one in asked] == [budget]


def test_the_rest_is_passed_on(explore: Explore, asked: list[Options]) -> None:
    assert explore("--seed", "3", "--tear", "4096", "--checkers", "4", "--resume") == 0
    assert explore("--at-replies") == 0
    assert explore("--uniform") == 0
    assert explore("--all-losses", "2", "--epochs", "3-40") == 0
    assert explore("--second-cuts", "4", "--second-states", "7", "--all-losses", "0", "--seed", "2") == 0
    assert asked == [
        Options(Budget(1000), seed=3, tear=4096, checkers=4, resume=True),
        Options(Budget(1000), at_replies=True),
        Options(Budget(1000), uniform=True),
        Options(Budget(None), all_losses=2, epochs=(3, 40)),
        Options(Budget(None), seed=2, all_losses=0, second_cuts=4, second_states=7),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tear", "1024"), "--tear must be 512 or 4096"),
        (("--keep",), "--keep requires --state"),
        (("--cycle", "maid-up"), "did you mean 'made-up'"),
        (("--state", "1-00000000"), "has a state '1-00000000' (explore the crash test first"),
        (("--resume",), "made-up has not been explored yet (leave --resume out)"),
        (("--states", "0"), "--states"),
        (("--epochs", "1-2"), "--epochs requires --all-losses"),
        (("--cluster", "local:2", "--checkers", "3"), "with --cluster, --checkers would have no effect"),
        (("--cluster", "locale:2"), "--cluster locale:2: not a cluster"),
        (("--second-states", "5"), "--second-states requires --second-cuts"),
        (("--all-losses", "2", "--epochs", "few"), "--epochs must be a range like 1-40, not 'few'"),
        (
            ("--all-losses", "2", "--epochs", "1-400"),
            "1 to 400 do not exist: the recording has the epochs 1 to 5",
        ),
        (("--all-losses", "2", "--at-replies"), "--at-replies would have no effect"),
        (("--all-losses", "2", "--seed", "2", "--tear", "4096"), "--seed, --tear would have no effect"),
    ],
)
def test_what_cannot_be_done_says_what_can(
    explore: Explore, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert explore(*words) == Status.BAD_REQUEST
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "1"],
        ["--tear", "4096"],
        ["--checkers", "1"],
        ["--states", "7"],
        ["--minutes", "2"],
        ["--resume"],
        ["--at-replies"],
        ["--all-losses", "1"],
        ["--second-cuts", "1"],
        ["--dry-run"],
        ["--cluster", "local:2"],
    ],
)
def test_what_is_for_many_states_is_refused_with_one(
    explore: Explore, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert explore("--state", "1-00000000", *words) == Status.BAD_REQUEST
    assert f"{words[0]} would have no effect" in capsys.readouterr().err


def test_a_dry_run_counts_the_states(explore: Explore, capsys: pytest.CaptureFixture[str]) -> None:
    assert explore("--all-losses", "1", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "5 flush epochs; chosen: 1 to 5" in said
    assert "crash states with up to 1 lost requests: " in said
    assert explore("--second-cuts", "3", "--dry-run") == 0
    assert "second power cuts: 3 recoveries, with at most 30 crash states" in capsys.readouterr().out
    assert explore("--dry-run", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    schema = json.loads((SCHEMAS / "exploration-dry-run.schema.json").read_text())
    Draft202012Validator(schema).validate(record)
    assert record["candidates"] == 513


def test_an_unknown_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "nothing", "--results", str(tmp_path)]) == Status.BAD_REQUEST
    assert "has no run" in capsys.readouterr().err


def test_one_state_is_shown_again(
    explore: Explore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = module.source_of
    monkeypatch.setattr(module, "source_of", lambda *words, **more: OnFakes.of(real(*words, **more)))
    assert explore("--checkers", "1") == Status.FAIL
    name = capsys.readouterr().out.partition("--state ")[2].split()[0]
    assert explore("--state", name, "--keep") == Status.FAIL
    said = capsys.readouterr().out
    assert f"state {name}: power cut" in said
    assert "./raidproof shell server" in said


def fits(name: str, document: object) -> bool:
    path = SCHEMAS / f"{name}.schema.json"
    Draft202012Validator(json.loads(path.read_text())).validate(document)
    return True


def test_a_state_is_written_to_a_file_and_recovered(
    explore: Explore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, record = tmp_path / "a.crash.zip", state_of(Outcome.FAIL)
    store = store_run(tmp_path / "honest", lies_from=ROUNDS)
    source, state = module.source_of(store), CrashState(14)
    monkeypatch.setattr("raidproof.run.replay.locate", lambda *_: (source, state))
    assert main(["explore", str(store.path), "--state", state.name, "--export", str(path)]) == Status.PASS
    assert f"./raidproof recover {path}" in capsys.readouterr().out
    asked: list[SoftwareSpec] = []

    def recover(_found: object, software: SoftwareSpec, _logs: Path) -> StateRecord:
        asked.append(software)
        return record

    monkeypatch.setattr("raidproof.run.crash_file.recover", recover)
    assert main(["recover", str(path), "--kernel", "debian/sid"]) == Status.FAIL
    said = capsys.readouterr().out
    assert "written by 6.12.113, recovered by 7.2.7" in said
    assert "FAIL: not mounted; blamed on the stack" in said
    assert "  block 7" in said
    assert main(["recover", str(path), "--json"]) == Status.FAIL
    assert fits("state", json.loads(capsys.readouterr().out))
    assert [one.kernel for one in asked] == ["debian/sid", None]


def state_of(outcome: Outcome) -> StateRecord:
    return StateRecord(
        run="run", cycle="sync", state="14-00c0ffee", kernel="7.2.7", recorded_on="6.12.113", outcome=outcome,
        reason="not mounted", blame=Blame(culprit=Culprit.STACK), examples=["block 7"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--export", "a.zip"], "--export requires --state"),
        (["--state", "14-00c0ffee", "--export", "a.zip", "--keep"], "--keep would have no effect"),
    ],
)
def test_an_export_needs_one_state(
    explore: Explore, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert explore(*words) == Status.BAD_REQUEST
    assert said in capsys.readouterr().err


def test_a_file_that_does_not_exist_cannot_be_recovered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover", str(tmp_path / "missing.zip")]) == Status.BAD_REQUEST
    assert "does not exist" in capsys.readouterr().err


def test_an_exploration_and_a_state_as_json(
    explore: Explore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = module.source_of
    monkeypatch.setattr(module, "source_of", lambda *words, **more: OnFakes.of(real(*words, **more)))
    assert explore("--checkers", "1", "--json") == Status.FAIL
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert fits("exploration", found)
    assert ExplorationRecord.model_validate(found).outcome is Outcome.FAIL
    name = captured.err.partition("--state ")[2].split()[0]
    assert explore("--state", name, "--json") == Status.FAIL
    captured = capsys.readouterr()
    state = json.loads(captured.out)
    assert fits("state", state)
    assert (state["state"], state["outcome"]) == (name, "FAIL")
    assert f"state {name}: power cut" in captured.err
