"""The suite ltp: tests of the Linux Test Project that run on an NFS mount."""

import re
from typing import ClassVar, Literal

from raidproof.core.command import Completed
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, passed, skipped, tail, unknown

# Bits of the exit status of an LTP program (include/tst_res_flags.h).
TFAIL, TBROK, TWARN, TCONF = 1, 2, 4, 32
_SUMMARY = re.compile(r"^(passed|failed|broken|skipped|warnings) +(\d+)$", re.MULTILINE)
_SAID = r"(?:^|[ :])({word})(?:[ :]+)(.*)$"

CASES: dict[str, tuple[str, ...]] = {
    "nfs01": ("nfs01_open_files", "1000"),
    "nfs04": ("nfs04_create_file", "10", "nfs04.testfile"),
    "fsx": ("fsx-linux", "-N", "5000"),
    "fsstress": ("fsstress", "-d", ".", "-n", "500", "-p", "4", "-s", "1"),
}
"""Program and arguments of each default test, by LTP's name of the test."""


def parse_ltp(name: str, ended: Completed) -> SuiteOutcome:
    """Return the result of one LTP program; unknown for a broken test (TBROK), which proves nothing."""
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
        return unknown(name, "status 0, but the summary counts no passed test")
    return passed(name)


def _line(word: str, text: str) -> str:
    found = re.search(_SAID.format(word=word), text, re.MULTILINE)
    return found.group(2).strip() if found else tail(text)


class Ltp(Suite):
    """An installed LTP: a folder with ``testcases/bin``."""

    entries: ClassVar[tuple[str, ...]] = ("testcases/bin",)
    remedy: ClassVar[str] = "install LTP on this host"

    suite: Literal["ltp"] = "ltp"
    cases: dict[str, tuple[str, ...]] = CASES
    """Program of testcases/bin and its arguments, by name of the test."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return one command per test, each in the suite's directory on the mount."""
        programs = f"{place.path}/testcases/bin"
        environment = {
            "LTPROOT": place.path,
            "TMPDIR": place.directory,
            "PATH": f"{programs}:/usr/sbin:/usr/bin",
            # User-mode Linux is too slow for LTP's own time limits; raidproof ends a test after ``deadline_s``.
            "LTP_TIMEOUT_MUL": "10",
        }
        return tuple(
            SuiteStep(
                name=name,
                argv=(f"{programs}/{argv[0]}", *argv[1:]),
                directory=place.directory,
                environment=environment,
            )
            for name, argv in self.cases.items()
        )

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the result of one test."""
        return parse_ltp(name, ended)
