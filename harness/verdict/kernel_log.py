"""What a kernel says on its console that no healthy run says."""

import re
from collections.abc import Iterable

from harness.verdict.outcome import Outcome, Verdict

# Each with the words that the kernel's own sources print (lib/bug.c, kernel/hung_task.c, fs/xfs, fs/ext4, block, md).
SIGNS: dict[str, re.Pattern[str]] = {
    "oops": re.compile(r"\bOops\b|\bBUG: |kernel BUG at|general protection fault|Unable to handle kernel"),
    "panic": re.compile(r"Kernel panic"),
    "warning": re.compile(r"WARNING: (?:CPU|.* at .*:\d+|\S+:\d+ at )"),
    "hung task": re.compile(r"blocked for more than \d+ seconds|soft lockup|rcu.*detected stalls?"),
    "corruption": re.compile(
        r"[Cc]orruption (?:of|detected|warning)|Metadata corruption|XFS.*(?:Internal error|Corruption)|EXT4-fs error"
        r"|XFS.*[Ss]hut(?:ting)? ?down filesystem|checksum (?:error|mismatch)"
    ),
    "I/O error": re.compile(r"I/O error|critical (?:medium|target) error|Buffer I/O|Disk failure on"),
    "recovery tracking": re.compile(r"Unable to initialize client recovery tracking"),
    "start-up": re.compile(r"raidproof-init: (?!ready)"),
    "out of memory": re.compile(r"Out of memory:|oom-kill:"),
}


def findings(log: str) -> list[tuple[str, str]]:
    """Return (sign, line) for each suspicious line of a console log."""
    return [
        (sign, line.strip()) for line in log.splitlines() for sign, pattern in SIGNS.items() if pattern.search(line)
    ]


def judge_kernel_logs(logs: Iterable[tuple[str, str]], asked_for: frozenset[str] = frozenset()) -> Verdict:
    """Judge (name, console log) pairs; signs in ``asked_for`` are what the fault was to cause."""
    bad = [f"{name}: {sign}: {line}" for name, log in logs for sign, line in findings(log) if sign not in asked_for]
    if not bad:
        return Verdict(checker="kernel log", outcome=Outcome.PASS, reason="no kernel said anything alarming")
    return Verdict(checker="kernel log", outcome=Outcome.FAIL, reason="; ".join(bad[:5]), blame="kernel")
