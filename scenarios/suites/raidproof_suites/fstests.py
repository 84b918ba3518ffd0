"""The suite fstests (xfstests): its generic tests on NFS. fstests mounts the export on its own mount point."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, joined, passed, skipped, tail, unknown

DIRECTORY = "/mnt/fstests"
"""Mount point of fstests in the client."""
_BEGUN = re.compile(r"^((?:generic|nfs|shared)/\d+)\s(.*)$", re.MULTILINE)
_LIST = re.compile(r"^(Ran|Not run|Failures): (.*)$", re.MULTILINE)


class Fstests(Suite):
    """The built fstests: a folder with ``check``."""

    entries: ClassVar[tuple[str, ...]] = ("check", "ltp/fsstress")
    remedy: ClassVar[str] = "build fstests, and install bc in the image"
    directories: ClassVar[tuple[str, ...]] = (DIRECTORY,)

    suite: Literal["fstests"] = "fstests"
    tests: tuple[str, ...] = ("-g", "quick")
    """Tests and groups, as arguments of ``check``; ``check`` skips the tests that do not support NFS."""
    exclude: tuple[str, ...] = ()
    """Names of tests that are left out."""
    deadline_s: float = Field(default=3600.0, gt=0)
    """Time limit in seconds of all tests together."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the command that runs the tests of fstests.

        Raises:
            RequestError: ``tests`` is empty.
        """
        if not self.tests:
            raise RequestError("fstests: the setting tests is empty", remedy='set tests, for example ("-g", "quick")')
        # A folder below the export, so that fstests sees no other files.
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
        """Return the results of the tests; unknown if the output lacks the lists at its end."""
        text = ended.stdout
        lists = {word: tests.split() for word, tests in _LIST.findall(text)}
        lines: dict[str, str] = dict(_BEGUN.findall(text))
        if "Ran" not in lists or "Interrupted!" in text:
            begun = [unknown(test, "fstests ended before its last test") for test in lines]
            return joined([*begun, unknown(name, f"status {ended.status}: {tail(f'{text} {ended.stderr}')}")])
        not_run, bad = lists.get("Not run", []), lists.get("Failures", [])
        ran = [test for test in lists["Ran"] if test not in {*not_run, *bad}]
        return joined(
            [
                *(passed(test) if test in lines else unknown(test, "no output line for this test") for test in ran),
                *(failed(test, _reason(lines.get(test, ""))) for test in bad),
                *(skipped(test, _reason(lines.get(test, ""))) for test in not_run),
            ]
        )


def _reason(line: str) -> str:
    return re.sub(r"^(?:\d+s \.\.\.\s*)?(?:\[not run\]\s*)?", "", line.strip()).strip() or "fstests states no reason"
