"""Runs the reproducers of findings on several kernels, and makes the matrix of findings by kernel."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from raidproof.core import command
from raidproof.core.errors import RequestError
from raidproof.core.log import aside, logger, progress, step
from raidproof.core.topology import Role
from raidproof.core.waiting import wall_clock
from raidproof.image.kernel.rebuild import SourcePatch, rebuilt
from raidproof.record import RunStore
from raidproof.record.finding import ANSWER, KERNEL, MATRIX, MEASURED, Answer, Finding, FindingsRecord, KernelAnswer
from raidproof.record.outcome import OUTCOME_OF_CALL, REASON_OF_CALL, Outcome
from raidproof.record.store import RECORD

FOLDER = "findings"
"""The folder of the project with the findings, their reproducers and their patches."""
PATCHES = "patches"
DEADLINE_S = 1200.0
"""Seconds that one reproducer may take on average."""
NO_REPRODUCER = "no reproducer: {why}"
NOT_RUN = "the reproducer did not run: pytest ended with status {status}, see {log}"


@dataclass(frozen=True)
class Case:
    """The result of one test in pytest's JUnit XML."""

    node: str
    """pytest's name of the test."""
    outcome: Outcome | None
    """None if the test failed by an error that is not raidproof's, such as a failed assert."""
    properties: Mapping[str, str]
    message: str
    seconds: float


def parse_cases(xml: str) -> list[Case]:
    """Return the tests in pytest's JUnit XML."""
    root = ElementTree.fromstring(xml)  # noqa: S314  pytest has just written the text
    return [_case(one) for one in root.iter("testcase")]


def _case(element: ElementTree.Element) -> Case:
    properties = {one.get("name", ""): one.get("value", "") for one in element.iter("property")}
    bad = next((found for tag in ("failure", "error", "skipped") if (found := element.find(tag)) is not None), None)
    if OUTCOME_OF_CALL in properties:
        outcome: Outcome | None = Outcome(properties[OUTCOME_OF_CALL])
    elif bad is None:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.SKIP if bad.tag == "skipped" else None
    said = (bad.get("message", "") if bad is not None else "").strip().splitlines()
    return Case(
        node=f"{element.get('classname', '').replace('.', '/')}.py::{element.get('name', '')}",
        outcome=outcome,
        properties=properties,
        message=properties.get(REASON_OF_CALL) or (said[0] if said else ""),
        seconds=float(element.get("time", "0")),
    )


def answer_of(
    finding: Finding, kernel: str, cases: Sequence[Case], *, missing: str, release: str | None = None
) -> KernelAnswer:
    """Return the answer of a finding on a kernel from the results of its reproducer.

    ``missing`` is the reason if the reproducer has no result, ``release`` the kernel if it stored none. A reproducer
    stores its own answer, which counts if its outcome agrees; for another test, `Reproducer.answers` has the answer by
    outcome.
    """
    reproducer = finding.reproducer
    if reproducer is None:
        reason = NO_REPRODUCER.format(why=finding.no_reproducer)
        return KernelAnswer(finding=finding.id, kernel=kernel, answer=Answer.UNDECIDED, reason=reason)
    found = [one for one in cases if one.node == reproducer.node]
    if not found:
        return KernelAnswer(finding=finding.id, kernel=kernel, answer=Answer.UNDECIDED, reason=missing)
    (case,) = found
    stored = case.properties.get(ANSWER)
    agreed = {Outcome.FAIL: Answer.AFFECTED, Outcome.PASS: Answer.NOT_AFFECTED} if stored else reproducer.answers
    answer = Answer.UNDECIDED if case.outcome is None else agreed.get(case.outcome, Answer.UNDECIDED)
    if stored is not None and stored != answer:
        answer = Answer.UNDECIDED
    measured = case.properties.get(MEASURED)
    outcome = "" if case.outcome is None else f"{case.outcome}: "
    said = f"{outcome}{case.message}" if case.message else f"{case.outcome or 'a failed assertion'} of {case.node}"
    return KernelAnswer(
        finding=finding.id,
        kernel=kernel,
        release=case.properties.get(KERNEL, release),
        answer=answer,
        outcome=case.outcome,
        reason=measured if measured and answer is not Answer.UNDECIDED else said,
        seconds=case.seconds,
    )


def run_findings(
    findings: Sequence[Finding],
    kernels: Sequence[str],
    home: Path,
    results: Path,
    *,
    words: Sequence[str] = (),
    patched: bool = False,
) -> tuple[FindingsRecord, Path]:
    """Run the reproducers of findings on each kernel; return the matrix, and the path of its file.

    ``home`` is the folder of the clone, ``words`` are further options of pytest. ``patched``: run only findings with a
    patch, and give the server a module with this patch.

    Raises:
        RequestError: ``patched``, and no finding has a patch.
        RequirementMissing, RigError: a patched module cannot be built.
    """
    chosen = [one for one in findings if one.patch is not None] if patched else list(findings)
    if not chosen:
        raise RequestError("none of these findings has a patch")
    store = RunStore.create(results.absolute(), "findings")
    record = FindingsRecord(
        started=wall_clock(),
        command=["./raidproof", *sys.argv[1:]],
        kernels=tuple(kernels),
        patched=patched,
        findings=tuple(one.id for one in chosen),
    )
    with progress("running the reproducers"):
        for kernel in kernels:
            for label, group, options in _groups(chosen, kernel, home, patched=patched):
                asked = [*options, *words]
                for answer in _answers(group, kernel, home, store, label=label, words=asked):
                    record.answers.append(answer)
                store.write_text(MATRIX, record.model_dump_json(indent=1) + "\n")
    record.ended = wall_clock()
    return record, store.write_text(MATRIX, record.model_dump_json(indent=1) + "\n")


def _groups(
    findings: Sequence[Finding], kernel: str, home: Path, *, patched: bool
) -> Iterator[tuple[str, list[Finding], list[str]]]:
    """Yield findings that can run in one lab: (name for files, findings, options of pytest)."""
    stem = kernel.replace("/", "-").strip("-")
    if not patched:
        yield stem, list(findings), [f"--kernel={kernel}"]
        return
    patches = {one.patch.file: one.patch for one in findings if one.patch is not None}
    for file, patch in patches.items():
        text = (home / FOLDER / PATCHES / file).read_text()
        modules = rebuilt(kernel, patch.module, SourcePatch(text))
        group = [one for one in findings if one.patch is not None and one.patch.file == file]
        # The clients keep Debian's modules.
        yield f"{stem}-{Path(file).stem}", group, [f"--kernel={kernel}", f"--server=modules={modules}"]


def _answers(
    findings: Sequence[Finding], kernel: str, home: Path, store: RunStore, *, label: str, words: Sequence[str]
) -> Iterator[KernelAnswer]:
    nodes = sorted({one.reproducer.node for one in findings if one.reproducer is not None})
    xml, log = store.path / f"{label}.xml", store.path / f"{label}.log"
    cases: list[Case] = []
    missing, release = "", None
    if nodes:
        step(f"{kernel}: {len(nodes)} reproducers")
        status = _run_pytest(nodes, home, store.directory(label), xml, log, words)
        cases = parse_cases(xml.read_text()) if xml.is_file() else []
        missing = NOT_RUN.format(status=status, log=log)
        release = server_release(store.path / label)
    for one in findings:
        yield answer_of(one, kernel, cases, missing=missing, release=release)


def server_release(results: Path) -> str | None:
    """Return the release of the server's kernel in the runs of a folder; None if no machine booted."""
    for path in sorted(results.glob(f"*/{RECORD}")):
        environment = RunStore(path.parent).load().environment
        for machine in environment.machines if environment else ():
            if machine.role == Role.SERVER:
                return machine.kernel
    return None


def _run_pytest(nodes: Sequence[str], home: Path, results: Path, xml: Path, log: Path, words: Sequence[str]) -> int:
    """Run tests in a process of their own; write the output to ``log`` and JUnit XML to ``xml``; return the status."""
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", f"--rootdir={home}"]
    argv += [f"--config-file={home / 'pyproject.toml'}", "--exhaustive", f"--results={results}", f"--junitxml={xml}"]
    # In the clone's environment: a wheel has no scenarios.
    path = os.pathsep.join([str(home / "harness"), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    with log.open("w") as file:

        def keep(line: str) -> None:
            logger.info(line)
            if "::" in line:  # pytest names a test when the test begins
                aside(line[:100])
            file.write(f"{line}\n")
            file.flush()

        ended = command.follow(
            [*argv, *words, *(str(home / node) for node in nodes)],
            keep,
            environment={"PYTHONPATH": path, "COLUMNS": "120"},
            deadline_s=DEADLINE_S * len(nodes),
        )
    return ended.status
