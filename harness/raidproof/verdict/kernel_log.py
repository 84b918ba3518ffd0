"""Verdicts on kernel logs: kernel messages that a crash test without a defect does not produce."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from raidproof.core.blame import Blame, Culprit
from raidproof.machine.kernel_log import text_of
from raidproof.record.observation import KernelSeen
from raidproof.record.outcome import Outcome, Verdict
from raidproof.storage.array import ARRAYS
from raidproof.storage.filesystem import FILESYSTEMS
from raidproof.storage.member import MEMBER_LAYERS
from raidproof.storage.server import SERVERS
from raidproof.storage.volume import VOLUMES

# Messages in the kernel's sources (lib/bug.c, kernel/hung_task.c, block, md). The patterns of the messages of a file
# system, an array or a server in user space are in its module.
CORRUPTION, SERVER, IO_ERROR, START_UP = "corruption", "NFS server", "I/O error", "start-up"
KERNEL = Blame(culprit=Culprit.KERNEL)
KERNEL_LOG = "kernel log"
"""Name of the check that the kernels report nothing suspicious."""
SIGNS: dict[str, re.Pattern[str]] = {
    "oops": re.compile(r"\bOops\b|\bBUG: |kernel BUG at|general protection fault|Unable to handle kernel"),
    "panic": re.compile(r"Kernel panic"),
    "warning": re.compile(r"WARNING: (?:CPU|.* at .*:\d+|\S+:\d+ at )"),
    "hung task": re.compile(r"blocked (?:in I/O wait )?for more than \d+ seconds|soft lockup|rcu.*detected .*stalls?"),
    CORRUPTION: re.compile(r"[Cc]orruption (?:of|detected|warning)|Metadata corruption|checksum (?:error|mismatch)"),
    IO_ERROR: re.compile(
        r"I/O error|(?:critical [a-z ]+|timeout|protection|device offline|transport) error, dev"
        r"|Buffer I/O|Disk failure on|Too many read errors"
    ),
    "NFS client": re.compile(
        r"NFS: .*(?:reclaim failed|fileid changed|unhandled error)|NFSv4: state recovery failed"
        r"|NFS\w*: state manager: .* failed on"
    ),
    "NFS state": re.compile(
        r"Unable to initialize client recovery tracking|Unable to end grace period|failed to purge old clients"
        r"|unable to find recovery directory|nfsd: non-standard errno"
    ),
    # The kernel's checks of its data structures and locks (lib/ubsan.c, lib/refcount.c, lib/list_debug.c, lockdep).
    "self-check": re.compile(
        r"UBSAN: |refcount_t: |list_(?:add|del) corruption|possible (?:circular|recursive) locking"
        r"|inconsistent lock state|suspicious RCU usage"
    ),
    START_UP: re.compile(r"raidproof-init: (?!ready)"),
    # An atomic allocation may fail: network drivers try again, and User-mode Linux logs it (finding uml-network).
    "out of memory": re.compile(r"Out of memory:|oom-kill:|page allocation failure(?!.*GFP_ATOMIC)"),
}
"""Patterns of suspicious kernel messages, by the name of the sign that reports show."""

FILE_GONE = r"NFSv4: state recovery failed for open file .*, error = -(?:2|116)$"
"""Message of a client whose open file the server has lost (ENOENT or ESTALE): it follows from a loss of data."""
WRECKED = frozenset({"oops", "panic", "hung task"})
"""Signs that the kernel itself failed."""
BLOCKED = re.compile(r"blocked (?:in I/O wait )?for more than \d+ seconds")
"""Message of a client's kernel for each task that waits for an unavailable server (kernel/hung_task.c)."""
NOT_ITS_OWN = re.compile(r"Attempted to kill init|Unable to mount root fs|No working init found")
"""Messages of panics that the rig causes, because it provides no init or no root file system."""
SHUT_DOWN = re.compile(
    r"reboot: (?:Power down|Restarting system|System halted)|sysrq: Power Off"
    r"|ACPI: PM: Preparing to enter system sleep state S5"
)
"""Messages of a kernel that shuts its devices down: requests of processes that still run fail.

Sources: kernel/reboot.c, kernel/power/poweroff.c, drivers/acpi/sleep.c."""
OF_DEVICES = frozenset({IO_ERROR, CORRUPTION, START_UP})
"""Signs that a process shows whose system disk is gone, for example the process raidproof-init by an error of ext4."""
BOOTED = re.compile(r"\bLinux version \d")
"""First message of a boot. With ``quiet``, only a time stamp that is smaller than before shows a boot."""
STAMP = re.compile(r"^\[ *(\d+\.\d+)\]")
DISORDER_S = 1.0
"""Greatest number of seconds by which the time stamps of two messages of one boot may be out of order."""
TRACED = 8
"""Greatest number of functions of a stack trace in a reason."""
ERROR, TAINTED = "error", "tainted"
"""Names of the signs of a message by its level, and of a flag by which the kernel says that it is tainted."""
HARMLESS: Mapping[str, str] = {
    r"md/raid\S*: Operation continuing on \d+ devices": "md adds it to the message 'Disk failure', which is a sign",
    r"md/raid\S*: starting dirty degraded array with PPL": "md restores the parity of its writes from the PPL",
    r"^md_update_sb: can't update sb for read-only array \S+$": "an array starts read-only (md's start_ro), and its"
    " superblocks wait for the first write; md logs this since 7.0 (8c9e376b9d1a)",
}
"""Regular expressions of messages of level err or worse that report no defect, each with the reason."""
_TRACE = re.compile(r"Call Trace:|Stack:|Backtrace:")
_FUNCTION = re.compile(r"(?:\? )?\b([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+")


def findings(log: str) -> list[tuple[str, str]]:
    """Return each suspicious line of a console log, preceded by the name of its sign.

    What follows from I/O errors between the shutdown of the devices and the next boot is left out.
    """
    layers = (FILESYSTEMS, VOLUMES, ARRAYS, MEMBER_LAYERS)
    damage = "|".join(kind.damage for registry in layers for _, kind in registry.items())
    errors = "|".join(kind.errors for _, kind in SERVERS.items())
    signs = {
        **SIGNS,
        CORRUPTION: re.compile(f"{SIGNS[CORRUPTION].pattern}|{damage}"),
        SERVER: re.compile(errors),
    }
    # Most lines show no sign: one search finds that out. It is made by line, as a pattern may have anchors.
    suspicious = re.compile("|".join(pattern.pattern for pattern in signs.values()))
    found, off, last_s = [], False, 0.0
    for line in log.splitlines():
        stamp = STAMP.search(line)
        stamp_s = last_s if stamp is None else float(stamp[1])
        booted = BOOTED.search(line) is not None or stamp_s < last_s - DISORDER_S
        off, last_s = (off or SHUT_DOWN.search(line) is not None) and not booted, stamp_s
        if suspicious.search(line):
            shown = [sign for sign, pattern in signs.items() if pattern.search(line)]
            found += [(sign, line.strip()) for sign in shown if not (off and sign in OF_DEVICES)]
    return found


def judge_wrecks(server: str, *, asked_for: Sequence[str] = ()) -> Verdict | None:
    """Return a FAIL verdict if the server's console log shows that its kernel failed, else None.

    ``server``: the console log. ``asked_for``: regular expressions of the kernel messages that the faults cause.
    """
    for sign, line in findings(server):
        asked = any(re.search(pattern, line) for pattern in asked_for)
        if sign in WRECKED and not asked and not NOT_ITS_OWN.search(line):
            trace = trace_of(server, line)
            reason = f"server: {sign}: {line}{f'; stack trace: {trace}' if trace else ''}"
            return Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=reason, blame=KERNEL)
    return None


def trace_of(log: str, line: str) -> str:
    """Return the functions of the first stack trace after a line of a log, innermost first; empty without a trace."""
    _, _, after = log.partition(line)
    begin = _TRACE.search(after)
    if begin is None:
        return ""
    named = (found[1] for found in _FUNCTION.finditer(after, begin.end()))
    return " < ".join(name for name, _ in zip(dict.fromkeys(named), range(TRACED), strict=False))


def blocked(text: str) -> frozenset[str]:
    """Return the lines of a kernel log that report a task blocked for too long."""
    return frozenset(line.strip() for line in text.splitlines() if BLOCKED.search(line))


def errors_of(seen: Mapping[str, KernelSeen], excused: Sequence[re.Pattern[str]]) -> list[tuple[str, str]]:
    """Return the messages of level err or worse and the flags of the kernels, each preceded by the name of its sign.

    ``seen``: what the kernels reported, by machine. Messages that are harmless or excused, or show a sign by their
    text, are left out: `findings` has the latter.
    """
    found = []
    for name, one in seen.items():
        for sign, line in errors_in(map(text_of, one.errors)):
            if not any(pattern.search(line) for pattern in excused):
                found.append((sign, f"kernel {name}: {sign}: {line}"))
        found += [(TAINTED, f"kernel {name}: {TAINTED}: {flag}") for flag in one.tainted]
    return found


def errors_in(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return each message once that is not harmless and shows no sign by its text, preceded by the sign `ERROR`.

    ``lines``: the texts of messages of level err or worse.
    """
    return [
        (ERROR, line)
        for line in dict.fromkeys(lines)
        if not any(re.search(pattern, line) for pattern in HARMLESS) and not findings(line)
    ]


def judge_kernel_logs(
    logs: Sequence[tuple[str, str]],
    *,
    seen: Mapping[str, KernelSeen] | None = None,
    asked_for: Sequence[str] = (),
    waited: Collection[str] = (),
    corrupted_by: Blame = KERNEL,
) -> Verdict:
    """Judge that the kernels report nothing suspicious, except what the faults explain.

    ``logs``: pairs of a name and a console log, which are searched for the texts of `findings`. ``seen``: what the
    kernels reported by level and by flags, by machine; None in older records. ``asked_for``: regular expressions of
    the kernel messages that the faults cause. ``waited``: messages of the clients' kernels about tasks that were
    blocked while the server was unavailable. ``corrupted_by``: the blame if all suspicious messages report corruption
    or errors: a file system with checksums reports, and corrects, what a lying disk has lost.
    """
    excused = [re.compile(pattern) for pattern in asked_for]
    if not logs:
        return Verdict(checker=KERNEL_LOG, outcome=Outcome.INCONCLUSIVE, reason="no console log was recorded")
    bad = [
        (sign, f"{name}: {sign}: {line}")
        for name, log in logs
        for sign, line in findings(log)
        if not any(pattern.search(line) for pattern in excused) and line not in waited
    ]
    bad += errors_of(seen or {}, excused)
    if not bad:
        return Verdict(
            checker=KERNEL_LOG, outcome=Outcome.PASS, reason="the console logs have no suspicious kernel message"
        )
    # What a file system does not recognise as corruption it reports as an error.
    blame = corrupted_by if {sign for sign, _ in bad} <= {CORRUPTION, ERROR} else KERNEL
    reason = "; ".join(line for _, line in bad[:5])
    return Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=reason, blame=blame)
