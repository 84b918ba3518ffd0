"""The programs behind LTP's NFS tests, on a mount of ours.

LTP's own nfs*.sh build a server and a mount themselves, on file systems that they format, and refuse to run on a
mounted NFS: what they would test is not our stack. The programs that they start do their work where they are.
"""

from typing import Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.layer import Spec
from raidproof.workload.suite.ltp_result import parse_ltp
from raidproof.workload.suite.outcome import SuiteOutcome
from raidproof.workload.suite.place import SuitePlace, SuiteStep

NAME = "ltp"
CASES: dict[str, tuple[str, ...]] = {
    "nfs01": ("nfs01_open_files", "1000"),
    "nfs04": ("nfs04_create_file", "10", "nfs04.testfile"),
    "fsx": ("fsx-linux", "-N", "5000"),
    "fsstress": ("fsstress", "-d", ".", "-n", "500", "-p", "4", "-s", "1"),
}
"""By LTP's name of the test: the program and its arguments."""


class Ltp(Spec):
    """LTP as it is installed: a folder with ``testcases/bin``."""

    suite: Literal["ltp"] = "ltp"
    path: str | None = None
    """The folder, on the host or in the machine."""
    cases: dict[str, tuple[str, ...]] = CASES
    """Other programs of testcases/bin can be named, with their arguments."""
    deadline_s: float = Field(default=600.0, gt=0)
    """For each."""


def ltp_steps(spec: Ltp, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return one command a case, each in the directory on the mount."""
    programs = f"{place.path}/testcases/bin"
    environment = {
        "LTPROOT": place.path,
        "TMPDIR": place.directory,
        "PATH": f"{programs}:/usr/sbin:/usr/bin",
        # A user-mode kernel is slower than what LTP's deadlines are made for; ours ends it.
        "LTP_TIMEOUT_MUL": "10",
    }
    return tuple(
        SuiteStep(
            name=name, argv=(f"{programs}/{argv[0]}", *argv[1:]), directory=place.directory, environment=environment
        )
        for name, argv in spec.cases.items()
    )


def parse_ltp_case(name: str, ended: Completed) -> SuiteOutcome:
    """Judge one case."""
    return parse_ltp(name, ended)
