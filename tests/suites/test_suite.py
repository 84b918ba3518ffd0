"""What a suite's commands are, and how the suite gets into a machine."""

import io
import tarfile
from pathlib import Path

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RequirementMissing
from raidproof_suites import Cthon, Fsstress, Fstests, Fsx, Ltp, Pynfs
from raidproof_suites.suite import Suite, SuitePlace, host_path, install, packed, parse_ldd
from tests.guest_files import FilesByCommands
from tests.suites.outputs import ended

PLACE = SuitePlace(
    path="/opt/suite/fsx",
    directory="/mnt/nfs/fsx-client1",
    mount="/mnt/nfs",
    server="10.77.0.10",
    export="/srv/raidproof",
    vers="4.2",
)


class Machine(FilesByCommands):
    """Answers by the first word."""

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


COMMANDS: list[tuple[Suite, str]] = [
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
def test_command(spec: Suite, words: str) -> None:
    assert words in " ".join(spec.steps(PLACE)[0].command)


def test_ltps_fsx_takes_a_directory_and_no_seed() -> None:
    (step,) = Fsx().steps(PLACE.model_copy(update={"path": "/x/fsx-linux"}))
    assert step.environment == {"TMPDIR": PLACE.directory}
    assert "-S" not in step.argv


@pytest.mark.parametrize("spec", [Fstests(tests=()), Cthon(groups=())])
def test_nothing_asked_is_refused(spec: Suite) -> None:
    with pytest.raises(RequestError):
        spec.steps(PLACE)


def test_pynfs_refuses_a_mount_of_version_3() -> None:
    with pytest.raises(RequestError, match="NFSv4 only"):
        Pynfs().steps(PLACE.model_copy(update={"vers": "3"}))


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
def test_what_is_nowhere_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: Suite) -> None:
    program = tmp_path / "built" / spec.suite
    program.parent.mkdir()
    program.write_bytes(b"x")
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(type(spec), "built", lambda _: program)
    path = install(spec, Machine({"command": ended("", 1), "test": ended("", 1)}))
    assert path.endswith(f"/{spec.suite}")
    assert install(spec, Machine({"command": ended("/usr/bin/own\n")})) == "/usr/bin/own"


def test_wrong_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="basic/test1"):
        host_path(Cthon(path=str(tmp_path)))
    with pytest.raises(RequestError, match="gone does not exist"):
        host_path(Cthon(), {"cthon": str(tmp_path / "gone")})


def test_packed_leaves_out_history(tmp_path: Path) -> None:
    (tmp_path / "s" / ".git").mkdir(parents=True)
    (tmp_path / "s" / ".git" / "x").write_text("x")
    (tmp_path / "s" / "run").write_text("x")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path / "s"))) as archive:
        assert archive.getnames() == ["s", "s/run"]
