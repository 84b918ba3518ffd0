"""fstests (xfstests): its generic group on NFS. fstests mounts the export itself, on its own mount point."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, joined, passed, skipped, tail, unknown

DIRECTORY = "/mnt/fstests"
_BEGUN = re.compile(r"^((?:generic|nfs|shared)/\d+)\s(.*)$", re.MULTILINE)
_LIST = re.compile(r"^(Ran|Not run|Failures): (.*)$", re.MULTILINE)


class Fstests(Suite):
    """fstests after its build: a folder with ``check``."""

    entries: ClassVar[tuple[str, ...]] = ("check", "ltp/fsstress")
    remedy: ClassVar[str] = "build fstests and give its folder; the image needs bc"
    directories: ClassVar[tuple[str, ...]] = (DIRECTORY,)

    suite: Literal["fstests"] = "fstests"
    tests: tuple[str, ...] = ("-g", "quick")
    """Tests and groups, as arguments of ``check``; of ``generic`` only those that support NFS run."""
    exclude: tuple[str, ...] = ()
    deadline_s: float = Field(default=3600.0, gt=0)

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the one command.

        Raises:
            RequestError: no test is requested.
        """
        if not self.tests:
            raise RequestError("fstests: no test is asked for", remedy="as -g quick, or generic/001")
        # TEST_DIR must exist, and a folder below the export separates it from other files.
        environment = {
            "FSTYP": "nfs",
            "TEST_DEV": f"{place.server}:{place.exported}",
            "TEST_DIR": DIRECTORY,
            "NFS_MOUNT_OPTIONS": f"-o vers={place.vers}",
            "TEST_FS_MOUNT_OPTS": f"-o vers={place.vers}",
            "HOME": "/root",
        }
        excluded = (word for test in self.exclude for word in ("-e", test))
        argv = ("./check", "-nfs", *excluded, *self.tests)
        return (SuiteStep(name=self.suite, argv=argv, directory=place.path, environment=environment),)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
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
