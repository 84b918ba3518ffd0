"""fstests (xfstests): its generic group on NFS. fstests mounts the export itself, on its own mount point."""

import re
from typing import Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.core.layer import Spec
from raidproof.workload.suite.place import (
    SuiteOutcome,
    SuitePlace,
    SuiteStep,
    failed,
    joined,
    passed,
    skipped,
    tail,
    unknown,
)

NAME = "fstests"
DIRECTORY = "/mnt/fstests"
_BEGUN = re.compile(r"^((?:generic|nfs|shared)/\d+)\s(.*)$", re.MULTILINE)
_LIST = re.compile(r"^(Ran|Not run|Failures): (.*)$", re.MULTILINE)


class Fstests(Spec):
    """fstests after its build: a folder with ``check``."""

    suite: Literal["fstests"] = "fstests"
    path: str | None = None
    """The folder, on the host or in the machine."""
    tests: tuple[str, ...] = ("-g", "quick")
    """Tests and groups, as arguments of ``check``; of ``generic`` only those that support NFS run."""
    exclude: tuple[str, ...] = ()
    deadline_s: float = Field(default=3600.0, gt=0)


def fstests_steps(spec: Fstests, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return the one command.

    Raises:
        RequestError: no test is requested.
    """
    if not spec.tests:
        raise RequestError("fstests: no test is asked for", remedy="as -g quick, or generic/001")
    # TEST_DIR must exist, and a folder below the export separates it from other files.
    export = f"{place.export.rstrip('/')}/{place.directory.removeprefix(place.mount).strip('/')}"
    environment = {
        "FSTYP": "nfs",
        "TEST_DEV": f"{place.server}:{export}",
        "TEST_DIR": DIRECTORY,
        "NFS_MOUNT_OPTIONS": f"-o vers={place.vers}",
        "TEST_FS_MOUNT_OPTS": f"-o vers={place.vers}",
        "HOME": "/root",
    }
    excluded = tuple(word for test in spec.exclude for word in ("-e", test))
    return (
        SuiteStep(
            name=NAME,
            argv=("./check", "-nfs", *excluded, *spec.tests),
            directory=place.path,
            environment=environment,
        ),
    )


def parse_fstests(name: str, ended: Completed) -> SuiteOutcome:
    """Parse the line of each test, and the lists at the end, which must be there."""
    text = ended.stdout
    lists = {word: tests.split() for word, tests in _LIST.findall(text)}
    said: dict[str, str] = dict(_BEGUN.findall(text))
    if "Ran" not in lists or "Interrupted!" in text:
        begun = [unknown(test, "the suite did not come to its end") for test in said]
        return joined([*begun, unknown(name, f"status {ended.status}: {tail(f'{text} {ended.stderr}')}")])
    not_run, bad = lists.get("Not run", []), lists.get("Failures", [])
    ran = [test for test in lists["Ran"] if test not in {*not_run, *bad}]
    return joined(
        [
            *(passed(test) if test in said else unknown(test, "no line about it in the output") for test in ran),
            *(failed(test, _reason(said.get(test, ""))) for test in bad),
            *(skipped(test, _reason(said.get(test, ""))) for test in not_run),
        ]
    )


def _reason(line: str) -> str:
    return re.sub(r"^(?:\d+s \.\.\.\s*)?(?:\[not run\]\s*)?", "", line.strip()).strip() or "no reason is given"
