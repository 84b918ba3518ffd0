"""External test suites: their command lines, and the parsing of real output from a User-mode Linux lab."""

import io
import tarfile
from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.record.outcome import Outcome
from raidproof.verdict.suite import judge_suite
from raidproof.workload.suite import Cthon, Fsstress, Fstests, Fsx, Ltp, Pynfs, SuiteOutcome, SuitePlace, SuiteSpec
from raidproof.workload.suite.cthon import parse_cthon
from raidproof.workload.suite.fsstress import compare_trees, parse_tree
from raidproof.workload.suite.fstests import parse_fstests
from raidproof.workload.suite.fsx import parse_fsx
from raidproof.workload.suite.ltp import parse_ltp
from raidproof.workload.suite.place import failed, passed, skipped, step_command, unknown
from raidproof.workload.suite.pynfs import parse_pynfs
from raidproof.workload.suite.run import host_path, install, packed, parse_ldd
from raidproof.workload.suite.suites import _SUITES, suite_of
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "suites"
PLACE = SuitePlace(
    path="/opt/suite/fsx",
    directory="/mnt/nfs/fsx-client1",
    mount="/mnt/nfs",
    server="10.77.0.10",
    export="/srv/raidproof",
    vers="4.2",
)


def ended(text: str, status: int = 0, stderr: str = "") -> Completed:
    return Completed(("suite",), status, text, stderr, "client1")


def real(name: str) -> str:
    return (DATA / name).read_text()


class Machine(FilesByCommands):
    """A fake that answers by the first word of a command."""

    name, address = "client1", "10.77.0.21"

    def __init__(self, answers: dict[str, Completed]) -> None:
        self.answers = answers
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: object, *, stdin: object = None, deadline_s: float = 0) -> Completed:
        words = tuple(argv)  # type: ignore[arg-type, var-annotated]
        self.ran.append(words)
        return self.answers.get(words[0], ended(""))

    def succeed(self, argv: object, *, stdin: object = None, deadline_s: float = 0) -> str:
        return self.run(argv, stdin=stdin).stdout


COMMANDS: list[tuple[SuiteSpec, str]] = [
    (Fsx(operations=7, seed=3), "env --chdir=/mnt/nfs/fsx-client1 /opt/suite/fsx -N 7 -S 3 fsx-file"),
    (Ltp(cases={"a": ("p", "1")}), "/opt/suite/fsx/testcases/bin/p 1"),
    (Pynfs(tests=("EID1",)), "python3 testserver.py 10.77.0.10:/srv/raidproof --maketree --secure --showomit"),
    (Pynfs(vers="4.0"), "env --chdir=/opt/suite/fsx/nfs4.0"),
    (Fstests(exclude=("generic/013",)), "TEST_DEV=10.77.0.10:/srv/raidproof/fsx-client1"),
    (Fstests(exclude=("generic/013",)), "./check -nfs -e generic/013 -g quick"),
    (Fsstress(operations=9), "-d /mnt/nfs/fsx-client1 -n 9 -p 4 -s 1"),
    (Cthon(groups=("basic",)), "NFSTESTDIR=/mnt/nfs/fsx-client1/basic"),
]


@pytest.mark.parametrize(("spec", "words"), COMMANDS)
def test_command(spec: SuiteSpec, words: str) -> None:
    assert words in " ".join(step_command(suite_of(spec).steps(spec, PLACE)[0]))


def test_ltps_fsx_takes_a_directory_and_no_seed() -> None:
    (step,) = suite_of(Fsx()).steps(Fsx(), PLACE.model_copy(update={"path": "/x/fsx-linux"}))
    assert step.environment == {"TMPDIR": PLACE.directory}
    assert "-S" not in step.argv


@pytest.mark.parametrize("spec", [Fstests(tests=()), Cthon(groups=())])
def test_nothing_asked_is_refused(spec: SuiteSpec) -> None:
    with pytest.raises(RequestError):
        suite_of(spec).steps(spec, PLACE)


def test_pynfs_refuses_a_mount_of_version_3() -> None:
    with pytest.raises(RequestError, match="NFSv4 only"):
        suite_of(Pynfs()).steps(Pynfs(), PLACE.model_copy(update={"vers": "3"}))


@pytest.mark.parametrize("name", ["fsx-0.3.1.txt", "fsx-linux.txt"])
def test_fsx_passed(name: str) -> None:
    assert parse_fsx("fsx", ended(real(name))) == passed("fsx")


def test_fsx_that_a_second_writer_disturbed_failed() -> None:
    outcome = parse_fsx("fsx", ended("", 1, real("fsx-0.3.1-second-writer.txt")))
    assert "Size error: expected 0xc8f but found 0x1000" in outcome.failed[0].reason


def test_fsx_in_c_that_a_second_writer_disturbed_failed() -> None:
    (case,) = parse_fsx("fsx", ended(real("fsx-c-second-writer.txt"), 110)).failed
    assert case.reason.startswith("READ BAD DATA")


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 0), (real("fsx-0.3.1.txt"), 1), ("error: invalid value 'x' for '-N <NUMOPS>'", 2), ("", 139)],
)
def test_fsx_without_an_end_of_its_own_is_unknown(text: str, status: int) -> None:
    outcome = parse_fsx("fsx", ended(text, status))
    assert outcome.unknown
    assert not outcome.passed


@pytest.mark.parametrize(
    ("status", "list_name"), [(0, "passed"), (1, "failed"), (2, "unknown"), (32, "skipped"), (139, "unknown")]
)
def test_ltp_status(status: int, list_name: str) -> None:
    assert getattr(parse_ltp("nfs04", ended(real("ltp-nfs04.txt"), status)), list_name)


def test_ltp_that_counts_nothing_is_unknown() -> None:
    assert parse_ltp("fsx", ended(real("fsx-linux.txt").replace("passed   1", "passed   0"))).unknown


def test_cthon_passed() -> None:
    assert len(parse_cthon("basic", ended(real("cthon-basic.txt"))).passed) == 10
    lock = parse_cthon("lock", ended(real("cthon-lock.txt")))
    assert "lock/15.2" in lock.passed
    assert not lock.failed


def test_cthon_reports_tests_that_do_not_apply() -> None:
    special = parse_cthon("special", ended(real("cthon-special.txt")))
    assert [one.name for one in special.skipped] == ["special/test freesp and file size"]


def test_cthon_that_was_cut_off_has_not_passed() -> None:
    outcome = parse_cthon("lock", ended(real("cthon-lock-cut-off.txt")))
    assert outcome.unknown
    assert judge_suite(outcome).outcome is Outcome.INCONCLUSIVE


def test_cthon_names_the_test_that_stopped_it() -> None:
    text = real("cthon-basic.txt")
    outcome = parse_cthon("basic", ended(text[: text.index("\t./test5 ok")], 1, "./test5: can't read"))
    assert "can't read" in next(one.reason for one in outcome.failed if one.name == "basic/test5")


def test_cthon_lock_that_failed_once_has_failed() -> None:
    text = real("cthon-lock.txt").replace(
        "15.1  - F_ULOCK [               0,          ENDING] PASSED.",
        "15.1  - F_ULOCK [               0,          ENDING] FAILED!",
        1,
    )
    assert [one.name for one in parse_cthon("lock", ended(text, 1)).failed] == ["lock/15.1"]


def test_fstests_lists() -> None:
    text = (
        "generic/001 3s ...  4s\ngeneric/004       [not run] O_TMPFILE is not supported\n"
        "generic/013 - output mismatch (see x.out.bad)\n"
        "Ran: generic/001 generic/004 generic/013\nNot run: generic/004\nFailures: generic/013\nFailed 1 of 3 tests\n"
    )
    outcome = parse_fstests("fstests", ended(text, 1))
    assert outcome.passed == ("generic/001",)
    assert outcome.skipped[0].reason == "O_TMPFILE is not supported"
    assert "output mismatch" in outcome.failed[0].reason
    cut_off = parse_fstests("fstests", ended(text[:60], 1))
    assert not cut_off.passed
    assert cut_off.unknown


def test_fstests_of_which_one_failed() -> None:
    outcome = parse_fstests("fstests", ended(real("fstests.txt"), 1))
    assert outcome.passed == ("generic/001",)
    assert [(one.name, one.reason.split(" (see")[0]) for one in outcome.failed] == [
        ("generic/013", "[failed, exit status 1]- output mismatch")
    ]
    cut_off = parse_fstests("fstests", ended(real("fstests.txt").partition("Ran:")[0], 1))
    assert not cut_off.passed
    assert {one.name for one in cut_off.unknown} == {"generic/001", "generic/013", "fstests"}


def test_pynfs_passed() -> None:
    outcome = parse_pynfs("pynfs", ended(real("pynfs.txt")))
    assert len(outcome.passed) == outcome.total == 4


def test_pynfs_summary_must_agree() -> None:
    stars = "*" * 50
    body = "EID1     st_exchange_id.testSupported          : PASS\n"
    body += "SEQ1     st_sequence.testSupported             : FAILURE\n           nfs4lib.BadCompoundRes: no\n"
    tail = f"{stars}\nCommand line asked for 2 of 262 tests\nOf those: 0 Skipped, 1 Failed, 0 Warned, 1 Passed\n"
    outcome = parse_pynfs("pynfs", ended(f"{stars}\n{body}{tail}"))
    assert outcome.passed == ("EID1 st_exchange_id.testSupported",)
    assert "BadCompoundRes" in outcome.failed[0].reason
    assert parse_pynfs("pynfs", ended(f"{stars}\n{body}{tail}".replace("1 Passed", "2 Passed"))).unknown
    assert parse_pynfs("pynfs", ended(f"{stars}\n{body}")).unknown


def test_differing_trees_are_reported() -> None:
    tree = parse_tree("a\tf 644 3\nb\tl 777 a\n", "abc  ./a\n")
    assert compare_trees(tree, tree).passed
    assert "b: client l 777 a, server has none" in compare_trees(tree, {"a": tree["a"]}).failed[0].reason
    assert compare_trees(tree, tree | {"a": "f 644 3 abd"}).failed
    assert compare_trees({}, {}).unknown
    with pytest.raises(RigError):
        parse_tree("a\tf 644 3\n", "abc  ./other\n")


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (SuiteOutcome(), Outcome.INCONCLUSIVE),
        (passed("a"), Outcome.PASS),
        (failed("a", "why"), Outcome.FAIL),
        (skipped("a", "why"), Outcome.SKIP),
        (unknown("a", "why"), Outcome.INCONCLUSIVE),
    ],
)
def test_verdict(outcome: SuiteOutcome, end: Outcome) -> None:
    assert judge_suite(outcome).outcome is end


def test_verdict_on_what_is_known() -> None:
    outcome = SuiteOutcome(passed=("b",), failed=failed("a", "why").failed)
    assert judge_suite(outcome, known=("a",)).outcome is Outcome.PASS
    assert "as expected: a" in judge_suite(outcome, known=("a",)).reason


def test_ldd_names_what_is_missing() -> None:
    text = "\tlibaio.so.1 => not found\n./fsx: /lib/libc.so.6: version `GLIBC_2.38' not found (required by x)"
    assert parse_ldd(text) == ("libaio.so.1", "/lib/libc.so.6 GLIBC_2.38")
    assert not parse_ldd("\tlibc.so.6 => /lib/libc.so.6 (0x0)")


def test_install_refuses_what_cannot_be_loaded(tmp_path: Path) -> None:
    program = tmp_path / "fsx"
    program.write_bytes(b"x")
    program.chmod(0o755)
    machine = Machine({"ldd": ended("\tlibaio.so.1 => not found")})
    with pytest.raises(RequirementMissing, match=r"libaio\.so\.1"):
        install(Fsx(path=str(program)), machine)


def test_suite_that_is_nowhere_names_the_remedy() -> None:
    with pytest.raises(RequirementMissing, match="--suite-path cthon=PATH"):
        install(Cthon(), Machine({}))


@pytest.mark.parametrize("spec", [Fsx(), Fsstress()])
def test_what_is_nowhere_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: SuiteSpec) -> None:
    program = tmp_path / "built" / spec.suite
    program.parent.mkdir()
    program.write_bytes(b"x")
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setitem(_SUITES, type(spec), suite_of(spec)._replace(built=lambda: program))
    path = install(spec, Machine({"command": ended("", 1), "test": ended("", 1)}))
    assert path.endswith(f"/{spec.suite}")
    assert install(spec, Machine({"command": ended("/usr/bin/own\n")})) == "/usr/bin/own"


def test_wrong_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="basic/test1"):
        host_path(Cthon(path=str(tmp_path)))
    with pytest.raises(RequestError, match="there is no"):
        host_path(Cthon(), {"cthon": str(tmp_path / "gone")})


def test_packed_leaves_out_history(tmp_path: Path) -> None:
    (tmp_path / "s" / ".git").mkdir(parents=True)
    (tmp_path / "s" / ".git" / "x").write_text("x")
    (tmp_path / "s" / "run").write_text("x")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path / "s"))) as archive:
        assert archive.getnames() == ["s", "s/run"]
