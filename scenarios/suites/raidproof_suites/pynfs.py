"""The suite pynfs: a client in Python sends NFSv4 requests directly to a server, without a mount.

The program ``testserver.py`` ends with status 0 even if tests fail, so the results come from the summary and from the
line of each test. pynfs needs the full Python library and xdrlib, which Python 3.13 lacks; a module xdrlib3 in the
suite's folder replaces it.
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
    """The built pynfs: a folder with ``nfs4.0`` and ``nfs4.1``."""

    entries: ClassVar[tuple[str, ...]] = ("nfs4.1/testserver.py", "nfs4.1/xdrdef/nfs4_pack.py")
    remedy: ClassVar[str] = "build pynfs (setup.py creates xdrdef)"

    suite: Literal["pynfs"] = "pynfs"
    vers: Literal["4.0", "4.1", "4.2"] | None = None
    """NFS version of the tests; None: the mount's version."""
    tests: tuple[str, ...] = ("all",)
    """Flags and codes that select tests, as arguments of testserver.py; the prefix ``no`` excludes tests."""
    deadline_s: float = Field(default=900.0, gt=0)
    """Time limit in seconds of all tests together."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return the command; its source port is below 1024 (--secure), as exports without ``insecure`` require.

        Raises:
            RequestError: the mount is NFSv3, for which pynfs has no tests.
        """
        vers = self.vers or place.vers
        if not vers.startswith("4."):
            raise RequestError(
                f"pynfs tests NFSv4 only, and the mount is NFSv{vers}",
                remedy="set the NFS version of pynfs or of the mount: vers = '4.2'",
            )
        folder = "nfs4.0" if vers == "4.0" else "nfs4.1"
        address = f"{place.server}:{place.export}"
        minor = () if vers == "4.0" else (f"--minorversion={vers.removeprefix('4.')}",)
        argv = ("python3", "testserver.py", address, "--maketree", "--secure", "--showomit", *minor, *self.tests)
        environment = {"PYTHONPATH": place.path, "PYTHONDONTWRITEBYTECODE": "1"}
        return (SuiteStep(name=self.suite, argv=argv, directory=f"{place.path}/{folder}", environment=environment),)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the results in the list between two lines of stars; unknown if the counts differ from the summary."""
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
            reason = f"the summary counts {counts[0]} passed and {counts[1]} failed tests"
            return joined(
                [outcome, unknown(name, f"{reason}, but the list has {len(outcome.passed)} and {len(outcome.failed)}")]
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
