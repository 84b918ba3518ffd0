"""The NFS tests of the Linux Test Project, and the results of its programs."""

import re
from typing import Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.layer import Spec
from raidproof.workload.suite.place import SuiteOutcome, SuitePlace, SuiteStep, failed, passed, skipped, tail, unknown

# include/tst_res_flags.h of LTP.
TFAIL, TBROK, TWARN, TCONF = 1, 2, 4, 32
_SUMMARY = re.compile(r"^(passed|failed|broken|skipped|warnings) +(\d+)$", re.MULTILINE)
_SAID = r"(?:^|[ :])({word})(?:[ :]+)(.*)$"

NAME = "ltp"
CASES: dict[str, tuple[str, ...]] = {
    "nfs01": ("nfs01_open_files", "1000"),
    "nfs04": ("nfs04_create_file", "10", "nfs04.testfile"),
    "fsx": ("fsx-linux", "-N", "5000"),
    "fsstress": ("fsstress", "-d", ".", "-n", "500", "-p", "4", "-s", "1"),
}
"""Program and arguments by LTP's name of the test."""


def parse_ltp(name: str, ended: Completed) -> SuiteOutcome:
    """Judge one program: a broken test (TBROK) shows nothing about the product, so its result is unknown."""
    text = f"{ended.stdout}\n{ended.stderr}"
    counts = {word: int(number) for word, number in _SUMMARY.findall(text)}
    if ended.status >= 128:
        return unknown(name, f"status {ended.status}: {tail(text)}")
    if ended.status & TFAIL:
        return failed(name, _line("TFAIL", text))
    if ended.status & (TBROK | TWARN):
        return unknown(name, _line("TBROK|TWARN", text))
    if ended.status & TCONF:
        return skipped(name, _line("TCONF", text))
    if ended.status != 0:
        return unknown(name, f"status {ended.status}: {tail(text)}")
    if counts and not counts.get("passed"):
        return unknown(name, "it ended well and counts nothing as passed")
    return passed(name)


def _line(word: str, text: str) -> str:
    found = re.search(_SAID.format(word=word), text, re.MULTILINE)
    return found.group(2).strip() if found else tail(text)


class Ltp(Spec):
    """LTP as it is installed: a folder with ``testcases/bin``."""

    suite: Literal["ltp"] = "ltp"
    path: str | None = None
    """The folder, on the host or in the machine."""
    cases: dict[str, tuple[str, ...]] = CASES
    """Other programs of testcases/bin can be named, with their arguments."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Seconds for each case."""


def ltp_steps(spec: Ltp, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return one command per case, each in the directory on the mount."""
    programs = f"{place.path}/testcases/bin"
    environment = {
        "LTPROOT": place.path,
        "TMPDIR": place.directory,
        "PATH": f"{programs}:/usr/sbin:/usr/bin",
        # A user-mode kernel is slower than LTP's deadlines assume; raidproof's deadline ends the test.
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
