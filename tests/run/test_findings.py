from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.image.kernel.rebuild import SourcePatch
from raidproof.record import Environment, MachineRecord, RunRecord, RunStore
from raidproof.record.finding import Answer, Finding, FindingsRecord, Layer, Patch, Reproducer
from raidproof.record.outcome import Outcome
from raidproof.run import findings as module
from raidproof.run.findings import Case, answer_of, parse_cases, run_findings, server_release

DATA = Path(__file__).parents[1] / "data" / "findings"
# As pytest wrote it with Linux 6.12.101: reproducers of which one shows its finding and one does not, a skipped test,
# a failed assertion, and a scenario that stores no answer.
JUNIT = (DATA / "junit.xml").read_text()
AFFECTED = "findings/test_early_commit_block.py::test_barrier_writes_wait_for_the_flushes[5-ext4]"


def finding(node: str | None, answers: dict[Outcome, Answer] | None = None, patch: Patch | None = None) -> Finding:
    return Finding(
        id="md-a",
        title="t",
        short="s",
        layer=Layer.MD,
        wrong="w",
        software="s",
        reproduce="r",
        evidence="e",
        state="s",
        reproducer=Reproducer(node=node, answers=answers or {}) if node else None,
        no_reproducer=None if node else "seen once",
        patch=patch,
    )


def case(outcome: Outcome | None, message: str = "", **properties: str) -> Case:
    named = {f"raidproof-{name}": value for name, value in properties.items()}
    return Case("a.py::b", outcome, named, message, 1.5)


def test_the_results_of_tests_are_read_from_junit_xml() -> None:
    cases = {one.node: one for one in parse_cases(JUNIT)}
    affected = cases[AFFECTED]
    assert affected.outcome is Outcome.FAIL
    assert affected.properties["raidproof-answer"] == "affected"
    assert "barrier writes came before the end" in affected.message
    outcomes = [one.outcome for one in cases.values()]
    assert outcomes == [Outcome.FAIL, Outcome.PASS, Outcome.SKIP, None]
    assert "assert 1 == 2" in list(cases.values())[3].message


def test_a_reproducer_in_junit_xml_is_an_answer() -> None:
    found = answer_of(finding(AFFECTED), "debian/trixie", parse_cases(JUNIT), missing="")
    assert (found.answer, found.release, found.outcome) == (Answer.AFFECTED, "6.12.101", Outcome.FAIL)
    assert found.reason.endswith("barrier writes came before the end of the flushes that precede them")


@pytest.mark.parametrize(
    ("one", "answers", "answer", "reason"),
    [
        (case(Outcome.FAIL, "m", answer="affected", measured="2 of 3"), {}, Answer.AFFECTED, "2 of 3"),
        (case(Outcome.PASS, answer="not affected", measured="0 of 3"), {}, Answer.NOT_AFFECTED, "0 of 3"),
        # The reproducer did not see the finding, and then failed for another reason.
        (case(Outcome.FAIL, "log", answer="not affected", measured="0 of 3"), {}, Answer.UNDECIDED, "FAIL: log"),
        (case(Outcome.INCONCLUSIVE, "1 of 1", answer="undecided"), {}, Answer.UNDECIDED, "INCONCLUSIVE: 1 of 1"),
        (case(Outcome.SKIP, "no gcc"), {}, Answer.UNDECIDED, "SKIP: no gcc"),
        (case(None, "assert 1 == 2"), {Outcome.PASS: Answer.AFFECTED}, Answer.UNDECIDED, "assert 1 == 2"),
        (case(Outcome.PASS), {Outcome.PASS: Answer.AFFECTED}, Answer.AFFECTED, "PASS of a.py::b"),
        (case(Outcome.FAIL, "m"), {Outcome.PASS: Answer.AFFECTED}, Answer.UNDECIDED, "FAIL: m"),
        # A test that stores no answer has none, unless the finding says what its outcome means.
        (case(Outcome.FAIL, "m"), {}, Answer.UNDECIDED, "FAIL: m"),
    ],
)  # fmt: skip
def test_the_answer_of_a_test(one: Case, answers: dict[Outcome, Answer], answer: Answer, reason: str) -> None:
    found = answer_of(finding("a.py::b", answers), "k", [one], missing="")
    assert (found.answer, found.reason) == (answer, reason)


def test_without_a_result_an_answer_is_undecided() -> None:
    assert answer_of(finding(None), "k", [], missing="").reason == "no reproducer: seen once"
    found = answer_of(finding("a.py::b"), "k", [], missing="pytest ended with status 4")
    assert (found.answer, found.reason) == (Answer.UNDECIDED, "pytest ended with status 4")


class FakePytest:
    """Stores JUnit XML instead of running tests."""

    def __init__(self, xml: str | None = JUNIT) -> None:
        self.xml = xml
        self.argvs: list[list[str]] = []

    def follow(self, argv: Sequence[str], on_line: Callable[[str], None], **_: object) -> Completed:
        self.argvs.append([*map(str, argv)])
        (target,) = [one.removeprefix("--junitxml=") for one in self.argvs[-1] if one.startswith("--junitxml=")]
        on_line("one line")
        if self.xml is not None:
            Path(target).write_text(self.xml)
        return Completed(tuple(argv), 1 if self.xml else 4, "", "")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePytest:
    made = FakePytest()
    monkeypatch.setattr(command, "follow", made.follow)
    return made


def test_a_matrix_is_stored(fake: FakePytest, tmp_path: Path) -> None:
    chosen = [finding(AFFECTED), finding(None).model_copy(update={"id": "md-b"})]
    kernels = ["debian/bookworm", "debian/trixie"]
    record, path = run_findings(chosen, kernels, tmp_path, tmp_path / "results", words=["--provider=uml"])
    assert FindingsRecord.model_validate_json(path.read_text()) == record
    assert [(one.finding, one.kernel, str(one.answer)) for one in record.answers] == [
        ("md-a", "debian/bookworm", "affected"),
        ("md-b", "debian/bookworm", "undecided"),
        ("md-a", "debian/trixie", "affected"),
        ("md-b", "debian/trixie", "undecided"),
    ]
    assert [one[-1] for one in fake.argvs] == [str(tmp_path / AFFECTED)] * 2
    assert {"--kernel=debian/trixie", "--provider=uml", "--exhaustive"} <= set(fake.argvs[1])
    assert (path.parent / "debian-trixie.log").read_text() == "one line\n"


def test_a_reproducer_that_did_not_run_is_undecided(fake: FakePytest, tmp_path: Path) -> None:
    fake.xml = None
    record, path = run_findings([finding(AFFECTED)], ["debian/sid"], tmp_path, tmp_path / "results")
    (only,) = record.answers
    assert only.answer is Answer.UNDECIDED
    assert only.reason.startswith("the reproducer did not run: pytest ended with status 4")
    assert str(path.parent / "debian-sid.log") in only.reason


def test_the_server_gets_the_module_with_the_patch(
    fake: FakePytest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[tuple[object, ...]] = []

    def rebuilt(*asked: object) -> Path:
        built.append(asked)
        return Path("/modules")

    monkeypatch.setattr(module, "rebuilt", rebuilt)
    patches = tmp_path / "findings" / "patches"
    patches.mkdir(parents=True)
    (patches / "a.patch").write_text("the patch")
    patch = Patch(file="a.patch", module="drivers/md/md-mod.ko")
    chosen = [finding(None).model_copy(update={"id": "md-b"}), finding(AFFECTED, patch=patch)]
    record, _ = run_findings(chosen, ["debian/trixie"], tmp_path, tmp_path / "results", patched=True)
    assert built == [("debian/trixie", "drivers/md/md-mod.ko", SourcePatch("the patch"))]
    assert "--server=modules=/modules" in fake.argvs[0]
    assert record.findings == ("md-a",)
    with pytest.raises(RequestError, match="none of these findings has a patch"):
        run_findings([finding(None)], ["debian/trixie"], tmp_path, tmp_path / "results", patched=True)


def test_the_release_is_that_of_the_servers_kernel(tmp_path: Path) -> None:
    assert server_release(tmp_path) is None
    store = RunStore.create(tmp_path, "scenarios")
    server = MachineRecord(
        name="server", role="server", asked="", kernel="6.12.101", packages={}, cpus=1, numa_nodes=1
    )
    client = server.model_copy(update={"name": "client1", "role": "client", "kernel": "7.2.7"})
    environment = Environment(
        raidproof="0",
        provider="uml",
        host_kernel="6.1",
        host_cpu="x",
        host_cpus=2,
        host_tools={},
        machines=[client, server],
        notes=[],
        cannot_prove=[],
    )
    store.save(RunRecord(run="r", started=wall_clock(), command=["./raidproof"], environment=environment))
    release = server_release(tmp_path)
    assert release == "6.12.101"
    answer = answer_of(finding("a.py::b"), "k", [case(Outcome.PASS)], missing="", release=release)
    assert answer.release == "6.12.101"
