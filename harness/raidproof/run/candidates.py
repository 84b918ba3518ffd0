"""The candidates of a bisection: commits of a git repository, versions of Debian packages, or values of an axis."""

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cmp_to_key
from glob import glob
from pathlib import Path
from typing import Protocol

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import SoftwareSpec
from raidproof.image import cache
from raidproof.plan.axes import read_value, write_value
from raidproof.record.bisection import CandidateRecord

GIT_DEADLINE_S = 1800.0
_GIT = (
    # `git bisect run` and hooks set these variables, which would override -C.
    *("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE"),
    # A checkout must not start the hooks of the user's repository.
    *("git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"),
)
TREE, COMMIT, KERNEL, PACKAGES, VERSION, VALUE = "tree", "commit", "kernel", "packages", "version", "value"
"""The placeholders of a command, in braces, that candidates replace."""
BUILT = {KERNEL, PACKAGES}
"""The placeholders for which commits are built."""

Build = Callable[[Path], SoftwareSpec]
"""A function that builds software from a source tree."""


@dataclass(frozen=True)
class Trial:
    """A candidate that is ready to be tested: its software, or its setting of a plan."""

    software: SoftwareSpec = field(default_factory=SoftwareSpec)
    setting: Mapping[str, str] = field(default_factory=dict)
    """The value of an axis, by the axis's name; empty unless the candidates are values of an axis."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The texts that replace placeholders in a command."""
    folder: Path | None = None
    """The working folder for a command; None: that of this process."""


def words_of(software: SoftwareSpec) -> dict[str, str]:
    """Return the texts that replace placeholders in a command, for a candidate's software."""
    words = {} if software.kernel is None else {KERNEL: software.kernel}
    return words | ({PACKAGES: " ".join(software.packages)} if software.packages else {})


class Candidates(Protocol):
    """The ordered candidates of a bisection, from the good end to the bad end."""

    builds: bool
    """Whether `prepare` builds software."""

    @property
    def listed(self) -> list[CandidateRecord]:
        """All candidates."""

    def prepare(self, index: int) -> Trial:
        """Return a candidate ready to be tested.

        Raises:
            BuildFailed, PackageBuildFailed: the candidate does not build.
            RigError: a step before the build failed.
        """

    def finish(self) -> None:
        """Remove what only this bisection needs."""


def git(folder: Path, *arguments: str) -> Completed:
    """Run git in a folder, and return its result, whatever its exit status.

    Raises:
        RequirementMissing: git is not installed.
    """
    return command.run([*_GIT, "-C", folder, *arguments], deadline_s=GIT_DEADLINE_S)


def _git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, and return its output.

    Raises:
        RigError: git failed.
    """
    completed = git(folder, *arguments)
    if not completed.ok:
        raise RigError(f"git {arguments[0]} failed in {folder}: {completed.stderr.strip()}")
    return completed.stdout


class Commits:
    """The commits of a git repository from a good to a bad one: the first parents of the bad commit."""

    def __init__(self, tree: Path, good: str, bad: str, *, build: Build | None) -> None:
        """Read the commits; ``build`` builds the software of each commit, None: the commits are only checked out.

        Raises:
            RequestError: ``tree`` is no git repository, a revision is unknown, or the bad commit does not follow the
                good one.
            RequirementMissing: git is not installed.
        """
        self.builds = build is not None
        self._build = build
        self._tree = tree = tree.resolve()
        if not tree.is_dir() or not git(tree, "rev-parse", "--git-dir").ok:
            raise RequestError(f"{tree} is not in a git repository", remedy="name the repository with --tree")
        ends = [self._resolved(word, revision) for word, revision in (("--good", good), ("--bad", bad))]
        if not git(tree, "merge-base", "--is-ancestor", *ends).ok or ends[0] == ends[1]:
            raise RequestError(
                f"the bad commit {bad} does not follow the good commit {good}",
                remedy="the good commit must be an ancestor of the bad one; give their common ancestor as --good",
            )
        shown = ["log", "--first-parent", "--reverse", "--format=%H %s", f"{ends[0]}..{ends[1]}"]
        first = _git(tree, "log", "-1", "--format=%H %s", ends[0])
        pairs = [line.partition(" ") for line in (first + _git(tree, *shown)).splitlines()]
        self._listed = [CandidateRecord(name=commit, title=subject) for commit, _, subject in pairs]
        self.folder = cache.place("bisect", cache.digest(str(tree)))
        """The folder of the work tree, which is never the user's own."""

    def _resolved(self, word: str, revision: str) -> str:
        found = git(self._tree, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if not found.ok:
            raise RequestError(f"{word} {revision}: {self._tree} has no such commit")
        return found.stdout.strip()

    @property
    def listed(self) -> list[CandidateRecord]:
        """All commits, the oldest first."""
        return self._listed

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the work tree during the ``with`` block.

        Raises:
            RequestError: another process holds the lock.
        """
        path = self.folder.with_name(f"{self.folder.name}.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RequestError(
                    f"another bisection of {self._tree} is running", remedy="wait for its end"
                ) from error
            yield

    def prepare(self, index: int) -> Trial:
        """Check out a commit in the work tree, and build it if its software is wanted.

        Raises:
            BuildFailed, PackageBuildFailed: the commit does not build.
            RigError: git failed.
        """
        commit = self._listed[index].name
        # Without -x: ignored files, which a build in the tree leaves, make the next build faster.
        checked_out = self.folder.is_dir() and all(
            git(self.folder, *words).ok
            for words in (("checkout", "--quiet", "--detach", "--force", commit), ("clean", "--quiet", "-dff"))
        )
        if not checked_out:
            self.finish()
            _git(self._tree, "worktree", "add", "--quiet", "--force", "--detach", str(self.folder), commit)
        software = SoftwareSpec() if self._build is None else self._build(self.folder)
        words = {TREE: str(self.folder), COMMIT: commit, **words_of(software)}
        return Trial(software, words=words, folder=self.folder)

    def finish(self) -> None:
        """Remove the work tree and the repository's entry for it; other entries stay, even of missing folders."""
        if self.folder.exists():
            git(self._tree, "worktree", "remove", "--force", "--force", str(self.folder))
            command.run(["rm", "-rf", "--one-file-system", "--", self.folder], deadline_s=GIT_DEADLINE_S)


class DebVersions:
    """Versions of Debian packages that are at hand as .deb files, the oldest first."""

    builds = False

    def __init__(self, patterns: Iterable[str]) -> None:
        """Read the files that the patterns of names match; a folder stands for its .deb files.

        Raises:
            RequestError: the files have less than two versions, or a file is no package.
            RequirementMissing: dpkg is not installed.
        """
        found = sorted(file for pattern in patterns for file in _matches(pattern))
        by_version: dict[str, list[Path]] = {}
        names: dict[Path, str] = {}
        for file in dict.fromkeys(found):
            shown = command.run(["dpkg-deb", "--show", "--showformat=${Package} ${Version}", file])
            if not shown.ok:
                raise RequestError(f"{file} is not a Debian package: {shown.stderr.strip()}")
            names[file], version = shown.stdout.split()
            by_version.setdefault(version, []).append(file)
        if len(by_version) < 2:
            raise RequestError(
                f"--debs: {len(by_version)} version{'' if len(by_version) == 1 else 's'} found, at least 2 are needed",
                remedy="name a folder of .deb files, or a pattern such as 'pool/mdadm_*.deb'",
            )
        self._versions = sorted(by_version, key=cmp_to_key(_compare))
        self._files, self._names = by_version, names

    @property
    def listed(self) -> list[CandidateRecord]:
        """All versions, the oldest first."""
        return [
            CandidateRecord(name=version, title=", ".join(sorted(self._names[file] for file in self._files[version])))
            for version in self._versions
        ]

    def prepare(self, index: int) -> Trial:
        """Return the software with the packages of a version; a package ``linux-image-...`` is the kernel."""
        version = self._versions[index]
        files = self._files[version]
        kernel = next((str(file) for file in files if self._names[file].startswith("linux-image")), None)
        packages = tuple(str(file) for file in files if str(file) != kernel)
        software = SoftwareSpec(kernel=kernel, packages=packages)
        return Trial(software, words={VERSION: version, **words_of(software)})

    def finish(self) -> None:
        """Do nothing."""


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    found = sorted(path.glob("*.deb")) if path.is_dir() else sorted(map(Path, glob(str(path))))  # noqa: PTH207
    if not found:
        raise RequestError(f"--debs {pattern}: no .deb file found")
    return [file.resolve() for file in found]


def _compare(one: str, other: str) -> int:
    """Return -1, 0 or 1 if a version of a Debian package is less than, equal to or greater than another one."""
    if one == other:
        return 0
    return -1 if command.run(["dpkg", "--compare-versions", one, "lt", other]).ok else 1


class AxisValues:
    """Values of one axis of a plan, in the order of the command line."""

    builds = False

    def __init__(self, word: str) -> None:
        """Read ``KEY=VALUE,VALUE,...``.

        Raises:
            RequestError: the axis or a value does not exist, or fewer than two values are given.
        """
        self.key, _, listed = word.partition("=")
        values = [part for part in listed.split(",") if part]
        if not self.key or len(values) < 2:
            raise RequestError(f"--axis {word}: at least two values are needed", remedy="write KEY=GOOD,...,BAD")
        self._values = [write_value(self.key, read_value(self.key, typed(value))) for value in values]

    @property
    def listed(self) -> list[CandidateRecord]:
        """All settings of the axis."""
        return [CandidateRecord(name=f"{self.key}={value}") for value in self._values]

    def prepare(self, index: int) -> Trial:
        """Return the setting of the axis."""
        value = self._values[index]
        return Trial(setting={self.key: value}, words={VALUE: value})

    def finish(self) -> None:
        """Do nothing."""


def typed(text: str) -> str | int | bool:
    """Return a value of the command line with the type that it would have in a plan file."""
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isdecimal() else text


def placeholders(words: Sequence[str]) -> set[str]:
    """Return the names of the placeholders that occur in the words of a command."""
    known = (TREE, COMMIT, KERNEL, PACKAGES, VERSION, VALUE)
    return {name for name in known if any(f"{{{name}}}" in word for word in words)}


def filled(words: Sequence[str], trial: Trial) -> list[str]:
    """Return the words of a command with a candidate's texts in place of the placeholders.

    Raises:
        RequestError: the candidates do not have the text of a placeholder.
    """
    if missing := placeholders(words) - trial.words.keys():
        raise RequestError(
            f"the command contains {', '.join(f'{{{name}}}' for name in sorted(missing))}, which the candidates lack",
            remedy=f"they have {', '.join(f'{{{name}}}' for name in trial.words)}",
        )
    done = list(words)
    for name, text in trial.words.items():
        done = [word.replace(f"{{{name}}}", text) for word in done]
    return done
