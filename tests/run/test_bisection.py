"""Bisections of a git repository with a command, of .deb files, and of values of an axis."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.core.command import succeed
from raidproof.core.errors import RequestError, Status
from raidproof.core.topology import SoftwareSpec
from raidproof.image.kernel.source import BuildFailed
from raidproof.record.bisection import BisectionRecord, CandidateAnswer
from raidproof.record.results.store import RunStore
from raidproof.run.bisection import RECORD, Bisection, again, digest_of, label_of, load, new_record
from raidproof.run.candidates import AxisValues, Commits, DebVersions, Trial, filled
from raidproof.run.predicate import Command, git_status
from raidproof.verdict.change.bisection import Reproduction
from tests.cli.test_main import _pytests_own_signals, stderr_of

__all__ = ["_pytests_own_signals"]
GIT = shutil.which("git") or "git"
COMMITS = 16
PLANTED = 11
TEST = "import sys, pathlib; sys.exit(int(pathlib.Path('state').read_text()))"
"""A test whose exit status is the number in the file ``state`` of a commit."""


def git(tree: Path, *words: str) -> str:
    identity = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = [GIT, "-C", str(tree), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def make_history(tree: Path, states: list[int]) -> list[str]:
    """Make a git repository with one commit for each state; return the commits."""
    tree.mkdir()
    git(tree, "init", "-q", "-b", "main")
    commits = []
    for number, state in enumerate(states):
        (tree / "state").write_text(str(state))
        (tree / "number").write_text(str(number))
        git(tree, "add", ".")
        git(tree, "commit", "-q", "-m", f"change {number}")
        commits.append(git(tree, "rev-parse", "HEAD"))
    return commits


def states_of(planted: int, number: int = COMMITS, skipped: tuple[int, ...] = ()) -> list[int]:
    """Return the exit status of the test for each commit after the good one: 1 from the planted commit on."""
    return [0] + [125 if one in skipped else int(one >= planted) for one in range(1, number + 1)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "tree"
    assert git(tmp_path / "tree", "status", "--porcelain") == ""


def bisect(tree: Path, commits: list[str], results: Path, *options: str, test: str = TEST) -> int:
    ends = ["--tree", str(tree), "--good", commits[0], "--bad", commits[-1]]
    return main(["bisect", *ends, "--results", str(results), *options, "--", sys.executable, "-c", test])


def record_in(results: Path) -> BisectionRecord:
    (path,) = results.glob(f"*/{RECORD}")
    return load(path)


@pytest.mark.parametrize("planted", [1, PLANTED, COMMITS])
def test_the_planted_commit_is_found(
    tmp_path: Path, tree: Path, planted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    commits = make_history(tree, states_of(planted))
    assert bisect(tree, commits, tmp_path / "results", "--once") == Status.PASS
    record = record_in(tmp_path / "results")
    assert [record.candidates[index].name for index in record.first_bad] == [commits[planted]]
    assert len(record.steps) <= 2 + 5
    assert all(step.results[-1].evidence for step in record.steps)
    assert "first bad candidate is" in capsys.readouterr().out
    assert git(tree, "worktree", "list").count("\n") == 0
    assert git(tree, "rev-parse", "HEAD") == commits[-1]


def test_commits_that_cannot_be_tested_leave_a_set(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, states_of(PLANTED, skipped=(PLANTED - 1, PLANTED)))
    assert bisect(tree, commits, tmp_path / "results", "--once") == Status.INCONCLUSIVE
    record = record_in(tmp_path / "results")
    assert record.first_bad == [PLANTED - 1, PLANTED, PLANTED + 1]


def test_without_once_each_decision_has_an_error_below_the_bound(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, states_of(2, number=3))
    assert bisect(tree, commits, tmp_path / "results") == Status.PASS
    record = record_in(tmp_path / "results")
    assert record.first_bad == [2]
    assert 0 < record.error <= 0.03
    assert [len(step.results) for step in record.steps[:2]] == [5, 4]


@pytest.mark.parametrize(
    ("states", "reason"), [([1, 1, 1], "the good end, "), ([0, 0, 0], "the bad end, "), ([0, 0, 2], "exit status 2")]
)
def test_ends_that_are_not_as_given_stop_the_search(
    tmp_path: Path, tree: Path, states: list[int], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commits = make_history(tree, states)
    assert bisect(tree, commits, tmp_path / "results", "--once") == Status.BAD_REQUEST
    assert reason in capsys.readouterr().err
    assert git(tree, "worktree", "list").count("\n") == 0


def test_an_end_that_cannot_be_tested_is_inconclusive(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commits = make_history(tree, [0, 0, 125])
    assert bisect(tree, commits, tmp_path / "results") == Status.INCONCLUSIVE
    assert "the bad end" in capsys.readouterr().err


def test_a_killed_bisection_is_resumed_without_repeating_tests(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, states_of(PLANTED))
    calls, alive = tmp_path / "calls", tmp_path / "alive"
    # The first time that the test reaches commit 12, it kills raidproof, which is the parent of its shell.
    test = f"""
import os, pathlib, signal, sys
number = pathlib.Path('number').read_text()
with open({str(calls)!r}, 'a') as file:
    file.write(number + ' ')
if number == '12' and not os.path.exists({str(alive)!r}):
    pathlib.Path({str(alive)!r}).touch()
    shell = int(pathlib.Path(f'/proc/{{os.getppid()}}/stat').read_text().rpartition(')')[2].split()[1])
    os.kill(shell, signal.SIGKILL)
    signal.pause()
sys.exit(int(pathlib.Path('state').read_text()))
"""
    words = ["bisect", "--tree", str(tree), "--good", commits[0], "--bad", commits[-1], "--once"]
    words += ["--results", str(tmp_path / "results")]
    program = [sys.executable, "-m", "raidproof", *words]
    killed = subprocess.run([*program, "--", sys.executable, "-c", test], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert record_in(tmp_path / "results").ended is None
    assert bisect(tree, commits, tmp_path / "results", "--once", "--resume", test=test) == Status.PASS
    assert [record_in(tmp_path / "results").candidates[PLANTED].name] == [commits[PLANTED]]
    assert record_in(tmp_path / "results").first_bad == [PLANTED]
    made = calls.read_text().split()
    assert sorted({one for one in made if made.count(one) > 1}) == ["12"]
    # The complete bisection is not resumed again.
    assert bisect(tree, commits, tmp_path / "results", "--once", "--resume", test=test) == Status.BAD_REQUEST


def test_the_failure_is_shown_again(tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits = make_history(tree, states_of(2, number=3))
    assert bisect(tree, commits, tmp_path / "results", "--show", commits[2][:10]) == Status.FAIL
    assert ": bad: the failure occurred in 1 of 1 repetition" in capsys.readouterr().out
    assert bisect(tree, commits, tmp_path / "results", "--show", commits[1][:10]) == Status.PASS
    assert bisect(tree, commits, tmp_path / "results", "--show", "zz") == Status.BAD_REQUEST
    assert git(tree, "worktree", "list").count("\n") == 0


def test_the_command_that_shows_it_again_keeps_the_predicate_last() -> None:
    assert again(["./raidproof", "bisect", "--resume", "--", "test", "--resume"], "abc") == [
        "./raidproof", "bisect", "--show=abc", "--", "test", "--resume"
    ]  # fmt: skip


def test_kernels_that_do_not_build_are_skipped_and_builds_are_counted(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, states_of(PLANTED))

    def build(folder: Path) -> SoftwareSpec:
        if (folder / "number").read_text() in {"8", "9"}:
            raise BuildFailed("no such function")
        kernel = tmp_path / f"kernel{(folder / 'number').read_text()}"
        kernel.write_text((folder / "state").read_text())
        return SoftwareSpec(kernel=str(kernel))

    candidates = Commits(tree, commits[0], commits[-1], build=build)
    words = (sys.executable, "-c", "import sys; sys.exit(int(open('{kernel}').read()))")
    store = RunStore.create(tmp_path / "results", "bisect")
    predicate, rule = Command(words, store.path), Reproduction(once=True)
    digest = digest_of(candidates, predicate, rule)
    record = new_record(candidates, predicate, rule, name="b", digest=digest, command=[], error=0.01)
    Bisection(candidates, predicate, rule, store, record).run()
    assert record.first_bad == [PLANTED]
    assert record.builds == len(record.steps)
    skipped = {step.index: step.reason for step in record.steps if step.decision is CandidateAnswer.UNTESTABLE}
    assert skipped == dict.fromkeys((8, 9), "does not build: no such function")
    assert json.loads((store.path / RECORD).read_text())["ended"] is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give exactly one of --tree, --debs, --axis"),
        (["--tree", "{tree}"], "give exactly one of --scenario, --plan, -- COMMAND"),
        (["--tree", "{tree}", "--", "true"], "--tree needs --good and --bad"),
        (["--tree", "{tree}", "--good", "HEAD~1", "--bad", "none", "--", "true"], "--bad none: "),
        (["--tree", "{tree}", "--good", "HEAD", "--bad", "HEAD~1", "--", "true"], "does not follow the good commit"),
        (["--tree", "/", "--good", "HEAD", "--bad", "HEAD~1", "--", "true"], "/ is not in a git repository"),
        (["--axis", "wsize=8KiB,16KiB", "--good", "HEAD", "--", "true"], "--good has an effect only with --tree"),
        (["--axis", "wsize=8KiB,16KiB", "--promise", "fsync", "--", "true"], "--promise has an effect only with"),
        (["--axis", "wsize=8KiB,16KiB", "--scenario", "x::y"], "a scenario has no axes"),
        (["--axis", "wsize=8KiB", "--", "true"], "at least two values"),
        (["--axis", "wsiez=8KiB,9KiB", "--", "true"], "unknown axis 'wsiez'"),
        (["--axis", "wsize=8KiB,16KiB", "--plan", "{plan}"], "give exactly one of --slower-than"),
        (["--axis", "wsize=8KiB,16KiB", "--plan", "{plan}", "--promise", "fsnyc"], "did you mean 'fsync'"),
        (["--axis", "wsize=8KiB,16KiB", "--plan", "{plan}", "--promise", "fsync"], "4 cells are selected"),
        (["--axis", "level=5,1", "--plan", "{plan}", "-k", "sync and level=5", "--promise", "any"], "no cell's name"),
        (["--tree", "{tree}", "--good", "HEAD~1", "--bad", "HEAD", "--scenario", "x.py::y"], "there is no file x.py"),
        (["--axis", "wsize=8KiB,16KiB", "--on", "sever", "--", "true"], "did you mean 'server'"),
        (["--debs", "/nowhere/*.deb", "--", "true"], "no .deb file found"),
        (["--axis", "wsize=8KiB,16KiB", "--", "test", "{tree}"], "the command contains {tree}"),
    ],
)
def test_requests_that_cannot_be(
    tmp_path: Path, tree: Path, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_history(tree, [0, 1])
    plan = Path(__file__).resolve().parents[2] / "scenarios" / "plans" / "tiny.toml"
    named = {"{tree}": str(tree), "{plan}": str(plan)}
    own = options.index("--") if "--" in options else len(options)
    words = [named.get(word, word) for word in options[:own]] + options[own:]
    status, said = stderr_of(capsys, "bisect", "--results", str(tmp_path / "results"), *words)
    assert status == Status.BAD_REQUEST
    assert reason in said


def test_values_of_an_axis_are_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bisect", "--axis", "threads=1,2,4,8", "--once", "--results", str(tmp_path), "--"]
    assert main([*words, sys.executable, "-c", "import sys; sys.exit({value} > 2)"]) == Status.PASS
    assert "the first bad candidate is threads=4" in capsys.readouterr().out
    assert [one.name for one in AxisValues("export=sync,async").listed] == ["export=sync", "export=async"]


def make_deb(folder: Path, package: str, version: str) -> Path:
    root = folder / f"{package}-{version}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: {package}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@b>\nDescription: test\n"
    )
    file = folder / f"{package}_{version}_all.deb"
    succeed(["dpkg-deb", "--build", root, file])
    return file


def test_versions_of_packages_are_in_debian_order(tmp_path: Path) -> None:
    for version in ("2.10-1", "2.9-1", "2.10~rc1-1"):
        make_deb(tmp_path, "mdadm", version)
    make_deb(tmp_path, "linux-image-6.12-amd64", "2.9-1")
    versions = DebVersions([str(tmp_path)])
    assert [one.name for one in versions.listed] == ["2.9-1", "2.10~rc1-1", "2.10-1"]
    trial = versions.prepare(0)
    assert trial.software.kernel == str(tmp_path / "linux-image-6.12-amd64_2.9-1_all.deb")
    assert trial.software.packages == (str(tmp_path / "mdadm_2.9-1_all.deb"),)
    with pytest.raises(RequestError, match="1 version found"):
        DebVersions([str(tmp_path / "*2.9-1*.deb")])
    (tmp_path / "x.deb").write_text("no package")
    with pytest.raises(RequestError, match="is not a Debian package"):
        DebVersions([str(tmp_path)])


def test_a_second_bisection_of_a_tree_is_refused(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, [0, 1])
    candidates: Any = [Commits(tree, commits[0], commits[-1], build=None) for _ in range(2)]
    with candidates[0].locked(), pytest.raises(RequestError, match="another bisection"), candidates[1].locked():
        pass


def test_placeholders_and_labels() -> None:
    trial = Trial(words={"kernel": "/k", "commit": "abc"})
    assert filled(["run", "--kernel={kernel}", "{commit} {other}"], trial) == ["run", "--kernel=/k", "abc {other}"]
    assert label_of(3, "export=sync") == "003-export-sync"


@pytest.mark.parametrize(
    ("status", "expected"), [(0, 0), (1, 1), (2, 128), (3, 125), (4, 125), (5, 125), (6, 125), (125, 125), (130, 130)]
)
def test_status_for_git_bisect_run(status: int, expected: int) -> None:
    assert git_status(status) == expected


def test_bisect_run_works_under_git(tmp_path: Path, tree: Path) -> None:
    commits = make_history(tree, [0, 3, 0, 1, 1])
    home = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home / "harness")])}
    git(tree, "bisect", "start", commits[-1], commits[0])
    words = [GIT, "-C", str(tree), "bisect", "run", sys.executable, "-m", "raidproof", "bisect-run", "--"]
    ended = subprocess.run(
        [*words, sys.executable, "-c", TEST], env=environment, capture_output=True, text=True, check=False
    )
    assert f"{commits[3]} is the first bad commit" in ended.stdout, ended.stdout + ended.stderr
    git(tree, "bisect", "reset")
