"""The Connectathon suite of 2004 (cthon04): basic, special and lock tests on an NFS mount.

The suite's script ``runtests`` copies the special tests with make(1), which the image lacks; therefore raidproof
copies their folder. The general tests run cc, make, tbl and nroff; they are skipped if the image lacks one of these.
"""

import re
from typing import ClassVar, Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError
from raidproof.record.suite import SuiteOutcome
from raidproof_suites.suite import Suite, SuitePlace, SuiteStep, failed, joined, passed, skipped, tail, unknown

Group = Literal["basic", "general", "special", "lock"]
ENDS: dict[str, str] = {
    "basic": "Congratulations, you passed the basic tests!",
    "general": "General tests complete",
    "special": "Special tests complete",
    "lock": "Congratulations, you passed the locking tests!",
}
"""The last line that each group of tests prints; a group ends at its first failure."""
NO_TOOLS = 77
"""Exit status of the command for the group ``general`` if a tool is missing."""
_NOT_HERE = "not available on this platform"
_BASIC = re.compile(r"^\s*\./(test\w+) ok\.$", re.MULTILINE)
_BASIC_BEGUN = re.compile(r"^\s*\./(test\w+): ", re.MULTILINE)
_LOCK = re.compile(r"^\s*(?:Parent|Child): (\d+\.\d+)\s+- (.*?)\s*(PASSED|FAILED!|WARNING!)", re.MULTILINE)
_SPECIAL = re.compile(r"^(check for .*|test .*|second check .*|write/read .*)$", re.MULTILINE)


class Cthon(Suite):
    """The built Connectathon suite: a folder with ``basic``, ``special`` and ``lock``."""

    entries: ClassVar[tuple[str, ...]] = ("basic/test1", "special/op_unlk", "lock/tlocklfs")
    remedy: ClassVar[str] = "build the Connectathon suite (cthon04)"

    suite: Literal["cthon"] = "cthon"
    groups: tuple[Group, ...] = ("basic", "special", "lock")
    """The groups of tests to run."""
    deadline_s: float = Field(default=900.0, gt=0)
    """Time limit in seconds of each group."""

    def steps(self, place: SuitePlace) -> tuple[SuiteStep, ...]:
        """Return one command per group of tests.

        Raises:
            RequestError: ``groups`` is empty.
        """
        if not self.groups:
            raise RequestError("cthon: the setting groups is empty", remedy=f"set one or more of {', '.join(ENDS)}")
        return tuple(_step(group, place) for group in self.groups)

    def parse(self, name: str, ended: Completed) -> SuiteOutcome:
        """Return the result of each test in the output of a group, and of the group as a whole."""
        if name == "general" and ended.status == NO_TOOLS:
            return skipped(name, "the image lacks one of cc, make, tbl, nroff and time")
        read = {"basic": _basic, "lock": _lock, "special": _special}
        tests = read[name](ended) if name in read else SuiteOutcome()
        if ended.ok and ENDS[name] in ended.stdout:
            return joined([tests, passed(name)])
        if tests.failed:
            return tests
        said = tail(f"{ended.stdout} {ended.stderr}")
        if not ended.stdout.strip() or ended.ok:
            return joined([tests, unknown(name, f"status {ended.status}, incomplete output: {said}")])
        return joined([tests, failed(name, f"status {ended.status}: {said}")])


def _step(group: Group, place: SuitePlace) -> SuiteStep:
    environment = {
        "NFSTESTDIR": f"{place.directory}/{group}",
        "MNTOPTIONS": f"vers={place.vers}",
        "LOCKTESTS": "tlocklfs tlock64",
        "PATH": "/usr/sbin:/usr/bin:.",
    }
    home = f"{place.path}/{group}"
    match group:
        case "basic" | "lock":
            argv: tuple[str, ...] = ("sh", "runtests", "-f")
        case "special":
            argv = ("sh", "-c", 'cp -r . "$NFSTESTDIR" && cd "$NFSTESTDIR" && sh runtests.wrk FROM_RUNTESTS')
        case "general":
            needed = "for tool in make cc tbl nroff time; do command -v $tool || exit 77; done"
            argv = ("sh", "-c", f"{needed}; sh runtests")
    return SuiteStep(name=group, argv=argv, directory=home, environment=environment)


def _basic(ended: Completed) -> SuiteOutcome:
    done = _BASIC.findall(ended.stdout)
    stopped = [one for one in _BASIC_BEGUN.findall(ended.stdout) if one not in done]
    ended_how = failed if not ended.ok else unknown
    reason = tail(f"{ended.stdout} {ended.stderr}")
    return joined([*(passed(f"basic/{one}") for one in done), *(ended_how(f"basic/{one}", reason) for one in stopped)])


def _lock(ended: Completed) -> SuiteOutcome:
    judged: dict[str, tuple[str, str]] = {}
    for number, what, end in _LOCK.findall(ended.stdout):
        # The 32-bit and the 64-bit program have the same test numbers: a failure of one of them counts.
        if judged.get(number, ("", ""))[1] != "FAILED!":
            judged[number] = (what, end)
    return joined(
        failed(f"lock/{number}", what) if end == "FAILED!" else passed(f"lock/{number}")
        for number, (what, end) in judged.items()
    )


def _special(ended: Completed) -> SuiteOutcome:
    found = list(_SPECIAL.finditer(ended.stdout))
    ends = [match.start() for match in found[1:]] + [len(ended.stdout)]
    tests = [(f"special/{match[1]}", ended.stdout[match.end() : end]) for match, end in zip(found, ends, strict=True)]
    if not (ended.ok and ENDS["special"] in ended.stdout):
        # The first failed test stops the group, so the tests before the last have passed.
        del tests[-1:]
    return joined(skipped(name, tail(said)) if _NOT_HERE in said else passed(name) for name, said in tests)
