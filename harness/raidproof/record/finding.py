"""Findings: defects and surprising behaviour of the software under test, and which kernels show them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from raidproof.core.errors import RequestError, nearest
from raidproof.core.toml import read_toml
from raidproof.record.cell import Strict
from raidproof.record.outcome import Outcome

KERNEL = "raidproof-kernel"
"""Name of the property of a test case in JUnit XML with the release of the server's kernel."""
MEASURED = "raidproof-measured"
"""Name of the property of a test case in JUnit XML with what a reproducer measured, in words."""
ANSWER = "raidproof-answer"
"""Name of the property of a test case in JUnit XML with the answer of a reproducer."""
MATRIX = "findings.json"
"""Name of the file, in the directory of a run, with the matrix of findings by kernel."""
SCHEMA = 1


class Layer(StrEnum):
    """The software that has a defect. The order is that of the document about findings."""

    MD = "md"
    FILESYSTEM = "file systems"
    NFSD = "nfsd, nfs-utils"
    USER_SERVER = "NFS servers in user space"
    NFS_CLIENT = "NFS client"
    APPLICATION = "applications"
    RIG = "User-mode Linux, QEMU"


class Answer(StrEnum):
    """Whether a kernel shows a finding."""

    AFFECTED = "affected"
    NOT_AFFECTED = "not affected"
    UNDECIDED = "undecided"


class Cause(Strict):
    """The place of a defect in the source of the software."""

    file: str
    """Path of the source file."""
    functions: tuple[str, ...]
    traced: Literal["reading", "patched kernel"]
    """How the cause was found: by reading the source only, or also by a test with a changed kernel."""


class Patch(Strict):
    """A change of the kernel's source with which the finding does not show."""

    file: str
    """Name of the patch in ``findings/patches``."""
    module: str
    """Path, in the kernel's source, of the module that the patch changes."""


class Reproducer(Strict):
    """A test that shows whether a kernel has the finding."""

    node: str
    """pytest's name of the test: ``findings/test_x.py::test_y[parameter]``."""
    answers: dict[Outcome, Answer] = Field(default_factory=dict)
    """The answer by outcome, for a test that stores no answer; with any other outcome the answer is undecided."""


class CrashStates(Strict):
    """What the failing crash states of a finding have in common. A field without a value does not restrict."""

    filesystems: tuple[str, ...] = ()
    """Kinds of file systems: ``xfs``, ``ext4``."""
    levels: tuple[str, ...] = ()
    """Levels of the array: ``5``, ``1+0``."""
    servers: tuple[str, ...] = ()
    """Kinds of NFS servers: ``knfsd``, ``ganesha``."""
    volumes: tuple[str, ...] = ()
    """Kinds of volumes between the array and the file system."""
    damages: tuple[str, ...]
    """Patterns (fnmatch) of the broken promise and the damage: ``recovery: not mounted``."""
    kernel: tuple[str, ...] = ()
    """Patterns (fnmatch) of kernel messages, of which the state has at least one."""
    torn: tuple[str, ...] = ()
    """Patterns (fnmatch) of structures, of which one survives in part in the smallest state."""
    early_barrier: bool | None = None
    """Whether a barrier write survives without a write that had completed before (`OrderRecord`)."""
    since: str = ""
    """The first release of the kernel that can show it: ``6.12``. Empty: any release."""


class Finding(Strict):
    """One finding. Texts are in Markdown."""

    id: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    """The name of the finding's file without the suffix."""
    title: str
    short: str
    """The finding in a few words, for tables."""
    layer: Layer
    by_design: bool = False
    """Whether the behaviour is as its developers intend."""
    affected: tuple[str, ...] = ()
    """Releases of the software in which the finding was measured."""
    not_affected: tuple[str, ...] = ()
    """Releases of the software in which the finding was looked for and not seen."""
    since: str | None = None
    """The first release that has the defect, and the commit that introduced it, if known."""
    wrong: str
    """What breaks, for whom."""
    software: str
    """The software and the configuration that show the finding."""
    reproduce: str
    evidence: str
    state: str
    """Whether the cause is known, and what raidproof does about the finding."""
    more: str | None = None
    """Paragraphs that follow."""
    crash_states: tuple[CrashStates, ...] = ()
    """The failing crash states that agree with the finding: those that agree with one of these descriptions."""
    cause: Cause | None = None
    patch: Patch | None = None
    reproducer: Reproducer | None = None
    no_reproducer: str | None = None
    """Why the finding has no reproducer; None if it has one."""


class KernelAnswer(Strict):
    """The answer of one finding's reproducer on one kernel."""

    finding: str
    kernel: str
    """The requested kernel."""
    release: str | None = None
    """The release of the server's kernel; None if the reproducer did not store it."""
    answer: Answer
    outcome: Outcome | None = None
    """The outcome of the reproducer; None if there is none, or if it has not ended."""
    reason: str
    """What the reproducer measured, or why the answer is undecided."""
    seconds: float | None = None
    """Duration of the reproducer."""


class FindingsRecord(Strict):
    """The matrix of findings by kernel."""

    schema_version: int = SCHEMA
    started: datetime
    ended: datetime | None = None
    command: list[str]
    kernels: tuple[str, ...]
    patched: bool = False
    """Whether the server's kernel had the patch of each finding."""
    findings: tuple[str, ...]
    answers: list[KernelAnswer] = Field(default_factory=list)

    def answer(self, finding: str, kernel: str) -> KernelAnswer | None:
        """Return the answer of a finding on a kernel; None if there is none yet."""
        return next((one for one in self.answers if (one.finding, one.kernel) == (finding, kernel)), None)

    @property
    def outcome(self) -> Outcome:
        """FAIL if a kernel is affected; else INCONCLUSIVE if an answer is undecided; else PASS."""
        answers = {one.answer for one in self.answers}
        if Answer.AFFECTED in answers:
            return Outcome.FAIL
        return Outcome.PASS if answers == {Answer.NOT_AFFECTED} else Outcome.INCONCLUSIVE


def load_finding(path: Path) -> Finding:
    """Return the finding in a TOML file.

    Raises:
        RequestError: the file is not valid TOML, or not a finding.
    """
    try:
        found = Finding.model_validate({**read_toml(path), "id": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if (found.reproducer is None) == (found.no_reproducer is None):
        raise RequestError(f"{path}: a finding has either a reproducer or the field no_reproducer")
    return found


def load_findings(folder: Path, ids: Sequence[str] = ()) -> list[Finding]:
    """Return the findings in a folder, or only those named in ``ids``, by layer and then by name.

    Raises:
        RequestError: a file is not a finding, or no finding has one of the names.
    """
    found = {path.stem: load_finding(path) for path in sorted(folder.glob("*.toml"))}
    for one in ids:
        if one not in found:
            raise RequestError(f"no finding is named {one!r}", remedy=nearest(one, found))
    return in_order(found[one] for one in (ids or found))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by layer, and then by name."""
    layers = list(Layer)
    return sorted(findings, key=lambda one: (layers.index(one.layer), one.id))
