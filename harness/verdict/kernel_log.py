"""What a kernel says on its console that no healthy run says."""

import re
from collections.abc import Sequence

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
    "NFS client": re.compile(r"NFS: .*(?:reclaim failed|fileid changed)"),
    "recovery tracking": re.compile(r"Unable to initialize client recovery tracking"),
    "start-up": re.compile(r"raidproof-init: (?!ready)"),
    "out of memory": re.compile(r"Out of memory:|oom-kill:"),
}

PANIC_BY_SYSRQ = "Kernel panic - not syncing: sysrq triggered crash"


def findings(log: str) -> list[tuple[str, str]]:
    """Return (sign, line) for each suspicious line of a console log."""
    return [
        (sign, line.strip()) for line in log.splitlines() for sign, pattern in SIGNS.items() if pattern.search(line)
    ]


def judge_kernel_logs(
    logs: Sequence[tuple[str, str]], *, panic_asked_for: bool = False, asked_for: Sequence[str] = ()
) -> Verdict:
    """Judge (name, console log) pairs.

    ``panic_asked_for``: the fault was a panic by sysrq, which alone is excused. ``asked_for``: patterns of the lines
    that other faults make a kernel say.
    """
    excused = [re.compile(pattern) for pattern in asked_for]
    if not logs:
        return Verdict(checker="kernel log", outcome=Outcome.INCONCLUSIVE, reason="no console was recorded")
    bad = [
        f"{name}: {sign}: {line}"
        for name, log in logs
        for sign, line in findings(log)
        if not (panic_asked_for and line.endswith(PANIC_BY_SYSRQ))
        and not any(pattern.search(line) for pattern in excused)
    ]
    if not bad:
        return Verdict(checker="kernel log", outcome=Outcome.PASS, reason="no kernel said anything alarming")
    return Verdict(checker="kernel log", outcome=Outcome.FAIL, reason="; ".join(bad[:5]), blame="kernel")
