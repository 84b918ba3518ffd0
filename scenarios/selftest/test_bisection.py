"""Bisections find a planted change: a slower network link, and a commit after which nfsd's COMMIT syncs nothing."""

from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.command import CommandFailed
from raidproof.core.errors import Inconclusive, RequirementMissing
from raidproof.core.log import say
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.image import apt, kernel
from raidproof.image.kernel import catalogue, rebuild, tree, uml
from raidproof.image.kernel.rebuild import SourceEdit, Substitution
from raidproof.image.kernel.source import BuildFailed
from raidproof.plan.plan import Plan, read_plan
from raidproof.record import RunStore
from raidproof.record.bisection import BisectionRecord, CandidateAnswer
from raidproof.report.bisection import lines_of
from raidproof.run.bisection import RECORD, WHAT, Bisection, new_record
from raidproof.run.candidates import AxisValues, Candidates, Commits
from raidproof.run.predicate import PlannedCell, Promise, Speed
from raidproof.run.run import Run
from raidproof.verdict.change.bisection import Reproduction, Rule, SlowerThan

BOUND_MB_S = 3.6
"""40 Mbit/s carry up to 5 MB/s, 20 Mbit/s only 2.5 MB/s: rates at which no host's CPU is the limit."""
COMMITS = 16
PLACES = (3, 9, 14)
"""The numbers of the planted commits, one for each history."""
MODULE = "fs/nfsd/nfsd.ko"
PLANTED = SourceEdit(
    "fs/nfsd/vfs.c", "", (Substitution("nfsd_commit", "vfs_fsync_range(", "1 ? 0 : vfs_fsync_range("),)
)
"""The change after which COMMIT syncs nothing."""
HARMLESS = ("fs/nfsd/export.c", "fs/nfsd/nfs4proc.c", "fs/nfsd/nfsfh.c", "fs/nfsd/nfssvc.c")
"""Files in which the other commits change a comment."""
DEMO = {
    "hardware": {"disks": {"count": 4, "size": "192MiB"}},
    "fixed": {"level": 5, "chunk": "64KiB", "vers": "4.2", "delegations": False},
    "workload": {"tool": "dd"},
}
"""The configuration of the demo's sync export."""


def bisected(
    current_run: Run, candidates: Candidates, predicate: PlannedCell, rule: Rule, name: str
) -> BisectionRecord:
    store = RunStore.create(current_run.store.path, f"{name}-{WHAT}")
    record = new_record(candidates, predicate, rule, name=name, digest="", command=[], error=0.01)
    current_run.discard_lab()
    Bisection(candidates, predicate, rule, store, record).run()
    for line in lines_of(record, str(store.path / RECORD)):
        say(line)
    return record


def planned(plan: Plan, file: Path, current_run: Run, part: Promise | Speed) -> PlannedCell:
    file.write_text("# The plan is in this file's scenario.\n")
    platform = Platform(provider=current_run.topology.provider)
    return PlannedCell(plan, file, None, platform, "server", current_run.store.path, part)


@pytest.mark.plants
@pytest.mark.alone
def test_the_first_slow_link_is_found(current_run: Run, tmp_path: Path) -> None:
    document = {
        "hardware": {"disks": {"count": 3, "size": "384MiB"}},
        "fixed": {"level": 5, "chunk": "64KiB"},
        "workload": {"tool": "dd", "bs": "1MiB", "count": 8},
    }
    plan = read_plan(document, source="here", name="rates")
    predicate = planned(plan, tmp_path / "plan.toml", current_run, Speed(BOUND_MB_S))
    candidates = AxisValues("rate=80Mbit,60Mbit,40Mbit,20Mbit,10Mbit")
    needed = "links that limit the speed: a host whose CPU has no other load"
    try:
        record = bisected(current_run, candidates, predicate, SlowerThan(BOUND_MB_S), "rates")
    except Inconclusive as error:
        raise RequirementMissing(f"{needed} ({error})") from error
    if any(step.decision is CandidateAnswer.UNTESTABLE for step in record.steps):
        raise RequirementMissing(needed)
    assert [record.candidates[index].name for index in record.first_bad] == ["rate=20Mbit"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a git repository of Debian's kernel source, with one branch for each place of the planted commit."""
    source = tree.located(Path(kernel.DEFAULT))
    repository = tmp_path_factory.mktemp("history") / "linux.git"

    def git(*words: str, stdin: str | None = None) -> str:
        identity = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        at = [f"--git-dir={repository}", f"--work-tree={source}"]
        argv = ["git", "-C", str(source), *at, "-c", "gc.auto=0", *words]
        return command.succeed(argv, stdin=stdin, environment=identity, deadline_s=900).strip()

    command.succeed(["git", "init", "--quiet", "--bare", repository])
    (repository / "info" / "exclude").write_text("")
    git("add", "--all", "--force", ".")
    base = git("write-tree")
    first = git("commit-tree", base, "-m", "Debian's source")
    for place in PLACES:
        git("read-tree", base)
        changed = {PLANTED.file: (source / PLANTED.file).read_text()} | {
            name: (source / name).read_text() for name in HARMLESS
        }
        commit = first
        for number in range(1, COMMITS + 1):
            file = PLANTED.file if number == place else HARMLESS[number % len(HARMLESS)]
            text = changed[file]
            changed[file] = PLANTED.apply(text) if number == place else f"{text}/* change {number} */\n"
            blob = git("hash-object", "-w", "--stdin", stdin=changed[file])
            git("update-index", "--cacheinfo", f"100644,{blob},{file}")
            title = f"nfsd: change {number} of {file}"
            commit = git("commit-tree", git("write-tree"), "-p", commit, "-m", title)
        git("branch", f"planted-{place}", commit)
    git("branch", "good", first)
    return repository


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for object files, with the configuration of Debian's kernel."""
    folder = tmp_path_factory.mktemp("objects")
    suite = catalogue.user_mode(kernel.DEFAULT).suite
    files = apt.download(suite, ["user-mode-linux"], tmp_path_factory.mktemp("packages"))
    unpacked = tmp_path_factory.mktemp("uml")
    apt.unpack(files["user-mode-linux"], unpacked)
    config = rebuild.config_of(unpacked, uml.get(kernel.DEFAULT).release)
    # The kernel loads only modules whose release does not name the commit.
    (folder / ".config").write_bytes(
        config.replace(b"CONFIG_LOCALVERSION_AUTO=y", b"# CONFIG_LOCALVERSION_AUTO is not set")
    )
    return folder


@pytest.mark.exhaustive
@pytest.mark.plants
@pytest.mark.parametrize("place", PLACES)
def test_the_commit_that_breaks_commit_is_found(
    place: int, history: Path, objects: Path, current_run: Run, tmp_path: Path
) -> None:
    if current_run.topology.provider != kernel.USER_MODE:
        raise RequirementMissing(f"provider {current_run.topology.provider} cannot replace a kernel module")
    release = uml.get(kernel.DEFAULT).release

    def nfsd_of(work_tree: Path) -> SoftwareSpec:
        folder = tmp_path / f"modules-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        try:
            rebuild.make_module(work_tree, objects, release, MODULE)
        except CommandFailed as error:
            raise BuildFailed(str(error)) from error
        (folder / "nfsd.ko").write_bytes((objects / MODULE).read_bytes())
        return SoftwareSpec(modules=str(folder))

    candidates = Commits(history, "good", f"planted-{place}", build=nfsd_of)
    plan = read_plan(DEMO, source="here", name="demo")
    predicate = planned(plan, tmp_path / "plan.toml", current_run, Promise("pages"))
    with candidates.locked():
        record = bisected(current_run, candidates, predicate, Reproduction(), f"commit-{place}")
    assert record.first_bad == [place]
    sides = {record.candidates[step.index].name: step.decision for step in record.steps}
    assert sides[record.candidates[place].name] is CandidateAnswer.BAD
    assert sides[record.candidates[place - 1].name] is CandidateAnswer.GOOD
