"""pynfs: hand-made NFSv4.0 and NFSv4.1+ requests, sent directly to a server, without a mount.

Its ``testserver.py`` ends with status 0 even if tests fail, so results come from the summary and the line of each
test. pynfs needs the full Python library, and ``xdrlib``, which Python 3.13 no longer has; an ``xdrlib3`` beside the
suite's folders is found.
"""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, joined, passed, skipped, tail, unknown

_TEST = re.compile(
    r"^(\S+)\s+(\S+)\s+: (PASS|FAILURE|WARNING|UNSUPPORTED|OMIT|DEPENDENCY.*|RUNNING|.*)$", re.MULTILINE
)
_SUMMARY = re.compile(
    r"^Of those: (?P<skipped>\d+) Skipped, (?P<failed>\d+) Failed, (?P<warned>\d+) Warned, (?P<passed>\d+) Passed$",
    re.MULTILINE,
)


class Pynfs(Suite):
    """The suite after its build: a folder with ``nfs4.0`` and ``nfs4.1``."""

    entries: ClassVar[tuple[str, ...]] = ("nfs4.1/testserver.py", "nfs4.1/xdrdef/nfs4_pack.py")
    remedy: ClassVar[str] = "build pynfs (its setup.py makes xdrdef) and give its folder"

    suite: Literal["pynfs"] = "pynfs"
    vers: Literal["4.0", "4.1", "4.2"] | None = None
    """None: the mount's version."""
    tests: tuple[str, ...] = ("all",)
    """Flags and codes of pynfs; ``no`` before one leaves it out."""
    deadline_s: float = Field(default=900.0, gt=0)

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the one command; the export must allow ports above 1023 (``insecure``), or --secure needs root.

        Raises:
            RequestError: the mount is NFSv3, for which pynfs has no tests.
        """
        vers = self.vers or place.vers
        if not vers.startswith("4."):
            raise RequestError(f"pynfs tests NFSv4 only, and the mount is NFSv{vers}", remedy="give it a vers")
        folder = "nfs4.0" if vers == "4.0" else "nfs4.1"
        address = f"{place.server}:{place.export}"
        minor = () if vers == "4.0" else (f"--minorversion={vers.removeprefix('4.')}",)
        argv = ("python3", "testserver.py", address, "--maketree", "--secure", "--showomit", *minor, *self.tests)
        environment = {"PYTHONPATH": place.path, "PYTHONDONTWRITEBYTECODE": "1"}
        return (SuiteStep(name=self.suite, argv=argv, directory=f"{place.path}/{folder}", environment=environment),)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Parse the list of tests between two lines of stars, and check it against the summary."""
        text = ended.stdout
        summary = _SUMMARY.search(text)
        if not ended.ok or summary is None or "Tests interrupted!" in text:
            return unknown(name, f"status {ended.status}: {tail(ended.stderr or text)}")
        listed = text[: summary.start()].split("*" * 50)
        body = listed[-2] if len(listed) > 2 else ""
        found = list(_TEST.finditer(body))
        starts = [match.start() for match in found]
        outcome = joined(
            _test(match, body[match.end() : following])
            for match, following in zip(found, [*starts[1:], len(body)], strict=False)
        )
        counts = tuple(int(summary[word]) for word in ("passed", "failed"))
        if (len(outcome.passed), len(outcome.failed)) != counts:
            reason = f"its summary counts {counts[0]} passed and {counts[1]} failed"
            return joined(
                [outcome, unknown(name, f"{reason}, {len(outcome.passed)} and {len(outcome.failed)} are listed")]
            )
        return outcome


def _test(match: re.Match[str], said: str) -> SuiteOutcome:
    code, test, end = match.groups()
    name, reason = f"{code} {test}", tail(said)
    if end == "PASS":
        return passed(name)
    if end == "FAILURE":
        return failed(name, reason)
    return skipped(name, f"{end}: {reason}" if said.strip() else end)
