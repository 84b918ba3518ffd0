"""The rules for warnings about a configuration: a condition on typed values, its reason, its source and its remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from raidproof.core.layer import power_of_two
from raidproof.plan.configuration import Configuration

LARGE_DRIVE = 2000 * 10**9
"""Bytes of a member from which the rebuild of a RAID4 or RAID5 reads 10^14 bits or more of a usual array."""
SLOW_REBUILD_S = 3 * 86_400
"""Duration of a rebuild in seconds from which the rule ``slow-rebuild`` warns: three days."""


class Severity(StrEnum):
    """What a configuration endangers, the worst first."""

    LOSS = "loss"
    """A power cut or a network fault loses or damages acknowledged writes."""
    RISK = "risk"
    """A second fault loses data, or the service, that another configuration would keep."""
    SPEED = "speed"
    """Writes are slower than the hardware allows."""
    NOTE = "note"
    """An option has no effect."""


@dataclass(frozen=True)
class Rule:
    """One rule: it fires if ``fires`` returns true. A value that is not known (None) never makes a rule fire."""

    name: str
    severity: Severity
    reason: str
    """What happens, as a sentence for users."""
    source: str
    """The section of a manual page, or the document, that the reason is taken from."""
    remedy: str
    """What the user can do, as a sentence in the imperative."""
    fires: Callable[[Configuration], bool]


def _striped(its: Configuration) -> bool:
    return its.kind is not None and its.kind.chunked and its.chunk_size is not None


def _stripe_size(its: Configuration) -> int | None:
    if its.chunk_size is None or its.raid is None:
        return None
    return its.chunk_size * its.raid.width


def _parity(its: Configuration) -> int:
    return its.kind.parity if its.kind is not None else 0


def _redundant(its: Configuration) -> bool:
    return its.kind is not None and its.kind.redundant


def _misaligned(its: Configuration) -> bool:
    if not _striped(its) or its.raid is None or not its.su:
        return False
    return its.su != its.chunk_size or (its.sw is not None and its.sw != its.raid.data_disks)


def _small_wsize(its: Configuration) -> bool:
    stripe = _stripe_size(its)
    return _parity(its) > 0 and stripe is not None and its.wsize is not None and its.wsize < stripe


def _slow_rebuild(its: Configuration) -> bool:
    if not _redundant(its) or its.member_size is None or not its.sync_speed_max:
        return False
    return its.member_size / its.sync_speed_max > SLOW_REBUILD_S


def _grace_below_lease(its: Configuration) -> bool:
    return its.grace_s is not None and its.lease_s is not None and its.grace_s < its.lease_s


RULES: tuple[Rule, ...] = (
    Rule(
        "async-export",
        Severity.LOSS,
        "the server replies before its disks have the data, so that a power cut loses acknowledged writes",
        "exports(5), async",
        "export with sync",
        lambda its: its.sync is False,
    ),
    Rule(
        "cache-without-barriers",
        Severity.LOSS,
        "the drives hold acknowledged writes in a volatile cache, and the file system never flushes this cache",
        "kernel: Documentation/block/writeback_cache_control.rst; ext4(5), barrier",
        "mount with barriers, or switch the write cache of the drives off",
        lambda its: its.write_cache == "volatile" and its.barriers is False,
    ),
    Rule(
        "no-barriers",
        Severity.RISK,
        "without barriers the file system depends on a write cache that survives a power cut; XFS of Linux 4.19 and "
        "later does not have this option, and refuses the mount",
        "ext4(5), barrier; kernel: Documentation/admin-guide/xfs.rst, Removed Mount Options",
        "remove nobarrier or barrier=0: a flush costs nothing on drives with a protected cache",
        lambda its: its.barriers is False,
    ),
    Rule(
        "soft-mount",
        Severity.LOSS,
        "if the server does not answer in time, write-back on the client fails, and the client discards the data",
        "nfs(5), soft / hard",
        "mount with hard",
        lambda its: its.recovery in {"soft", "softerr"},
    ),
    Rule(
        "udp",
        Severity.LOSS,
        "a fragment of a UDP packet may be joined to another packet with the same number, which corrupts data",
        "nfs(5), Using NFS over UDP on high-speed links",
        "mount with proto=tcp",
        lambda its: its.udp is True,
    ),
    Rule(
        "degraded",
        Severity.RISK,
        "members are missing or not rebuilt, so that the array has less redundancy than its level; after a power cut "
        "md does not start a RAID4, 5 or 6 that is degraded and was being written",
        "md(4), UNCLEAN SHUTDOWN; mdadm(8), --detail",
        "replace the missing members before you measure",
        lambda its: bool(its.degraded),
    ),
    Rule(
        "mismatches",
        Severity.RISK,
        "the last check found copies or parity that differ, so that a rebuild may return wrong data; on RAID1 and "
        "RAID10 swap and memory-mapped files can cause harmless differences",
        "md(4), SCRUBBING AND MISMATCHES",
        "find the cause, and write repair to md/sync_action",
        lambda its: bool(its.mismatches) and _redundant(its),
    ),
    Rule(
        "no-redundancy",
        Severity.RISK,
        "the failure of one drive loses the file system",
        "md(4), RAID0",
        "choose a level with redundancy",
        lambda its: its.kind is not None and not its.kind.redundant,
    ),
    Rule(
        "no-bitmap",
        Severity.RISK,
        "after a power cut md reads and compares all members, for hours on large drives; until then copies or parity "
        "may be wrong, and a drive that fails takes data with it",
        "md(4), BITMAP WRITE-INTENT LOGGING",
        "mdadm --grow --bitmap=internal",
        lambda its: _redundant(its) and its.policy == "resync",
    ),
    Rule(
        "write-hole",
        Severity.RISK,
        "a power cut together with the loss of a member can damage data of the stripes that were being written, also "
        "old data; a bitmap does not prevent this",
        "kernel: Documentation/driver-api/md/raid5-cache.rst and raid5-ppl.rst",
        "RAID4, 5 and 6: add a journal device; RAID5: or choose consistency policy ppl",
        lambda its: _parity(its) > 0 and its.policy in {"resync", "bitmap"},
    ),
    Rule(
        "single-parity-large-drives",
        Severity.RISK,
        "a rebuild reads every sector of all other drives, and at the data sheets' rate of one unreadable sector in "
        "10^14 or 10^15 bits it often meets one that it cannot correct",
        "Chen et al., ACM Computing Surveys 26(2), 1994; data sheets: unrecoverable read errors",
        "use RAID6 or RAID10, and check the array every month (md/sync_action)",
        lambda its: (
            _parity(its) == 1
            and its.rotational is not False
            and its.member_size is not None
            and its.member_size >= LARGE_DRIVE
        ),
    ),
    Rule(
        "slow-rebuild",
        Severity.RISK,
        "the limit of the resync speed makes a rebuild of one drive last more than three days, in which the array has "
        "less redundancy",
        "md(4), /proc/sys/dev/raid/speed_limit_max",
        "raise dev.raid.speed_limit_max or md/sync_speed_max",
        _slow_rebuild,
    ),
    Rule(
        "log-on-member-disk",
        Severity.SPEED,
        "the external log is on a disk that also is a member, so that each synchronous write moves the heads between "
        "log and data",
        "mkfs.xfs(8), -l logdev; mke2fs(8), -J device",
        "move the log to a disk of its own, or make it internal",
        lambda its: its.log_place == "member's disk" and its.rotational is True,
    ),
    Rule(
        "log-between-data",
        Severity.SPEED,
        "log and data are on the same rotating disks, and no protected cache takes the writes: each synchronous write "
        "of a client waits for head movements between log and data",
        "mkfs.xfs(8), -l; mke2fs(8), -J device",
        "place the log on a separate mirrored SSD, or use a controller with a protected write cache",
        lambda its: (
            its.log_place == "members"
            and its.rotational is True
            and its.write_cache != "protected"
            and its.sync is True
        ),
    ),
    Rule(
        "log-on-one-disk",
        Severity.RISK,
        "the external log is on a single disk, whose failure makes the file system unusable, although the array "
        "survives the failure of a member",
        "mkfs.xfs(8), -l logdev; mke2fs(8), -J device",
        "place the log on a RAID1",
        lambda its: (
            _redundant(its)
            and its.log_place in {"own disk", "member's disk"}
            and its.log_needed
            and its.log_mirrored is not True
        ),
    ),
    Rule(
        "no-journal",
        Severity.RISK,
        "without a journal a power cut can leave an inconsistent file system, which must be checked as a whole",
        "ext4(5), has_journal",
        "create the file system with a journal (tune2fs -O has_journal)",
        lambda its: its.log_place == "none",
    ),
    Rule(
        "data-writeback",
        Severity.RISK,
        "ext4 commits the size of a file before its data: after a power cut a file may contain old blocks of the disk",
        "ext4(5), data=writeback",
        "mount with data=ordered",
        lambda its: its.data_mode == "writeback",
    ),
    Rule(
        "misaligned",
        Severity.SPEED,
        "su and sw of the file system are not those of the array, so that large writes cover partial stripes, and a "
        "level with parity must read before it writes",
        "mkfs.xfs(8), -d su, sw; mke2fs(8), -E stride, stripe_width",
        "set su to the chunk size and sw to the number of data disks: XFS by mount options sunit and swidth, ext4 by "
        "tune2fs -E",
        _misaligned,
    ),
    Rule(
        "not-aligned",
        Severity.SPEED,
        "the file system has no stripe unit, so that it places files without regard to the stripes of the array",
        "mkfs.xfs(8), -d su, sw; mke2fs(8), -E stride, stripe_width",
        "ext4: tune2fs -E stride=,stripe_width=; XFS: mount options sunit and swidth",
        lambda its: _striped(its) and its.su == 0 and _parity(its) > 0,
    ),
    Rule(
        "odd-chunk",
        Severity.SPEED,
        "the chunk size is no power of two: file systems cannot align to it, and md must divide for each request",
        "md(4), RAID0; mdadm(8), --chunk",
        "create the array with a chunk size that is a power of two",
        lambda its: its.chunk_size is not None and not power_of_two(its.chunk_size),
    ),
    Rule(
        "small-wsize",
        Severity.SPEED,
        "a WRITE is smaller than a stripe: unless the server merges WRITEs, md reads old data and parity for each "
        "of them; O_DIRECT and synchronous writes are never merged",
        "nfs(5), wsize; Chen et al., ACM Computing Surveys 26(2), 1994 (small writes)",
        "mount with wsize=1048576, and choose a chunk size so that a stripe has at most 1 MiB",
        _small_wsize,
    ),
    Rule(
        "no-wdelay",
        Severity.SPEED,
        "without wdelay nfsd commits each small synchronous write alone, which costs a flush of the drives each time",
        "exports(5), no_wdelay",
        "remove no_wdelay, unless the write cache is protected or the writes are unrelated",
        lambda its: its.wdelay is False and its.sync is True and its.write_cache != "protected",
    ),
    Rule(
        "no-wdelay-without-effect",
        Severity.NOTE,
        "no_wdelay has no effect on an async export",
        "exports(5), no_wdelay",
        "remove no_wdelay",
        lambda its: its.wdelay is False and its.sync is False,
    ),
    Rule(
        "short-grace",
        Severity.RISK,
        "the grace period is shorter than the lease: a client that did not yet notice the server's restart cannot "
        "reclaim its locks, and another client may get them",
        "RFC 8881, section 8.4.2.1; rpc.nfsd(8), -G",
        "set grace-time to at least lease-time",
        _grace_below_lease,
    ),
    Rule(
        "subtree-check",
        Severity.RISK,
        "a file that is renamed while a client has it open can no longer be accessed (ESTALE), and writes that the "
        "client has cached are lost",
        "exports(5), subtree_check",
        "export with no_subtree_check",
        lambda its: its.subtree_check is True,
    ),
    Rule(
        "space-before-options",
        Severity.RISK,
        "a space separates a client from its options in exports: the options hold for every host, and the named "
        "client has the defaults, which are read-only",
        "exports(5), DESCRIPTION",
        "remove the space",
        lambda its: its.open_to_all is True,
    ),
    Rule(
        "mount-sync",
        Severity.SPEED,
        "the mount option sync or noac makes every write() wait for the server; fsync() and close() give the same "
        "promise without it",
        "nfs(5), The sync mount option",
        "mount without sync and noac, if the applications call fsync()",
        lambda its: its.sends_at_once is True,
    ),
    Rule(
        "intr",
        Severity.NOTE,
        "the mount options intr and nointr have no effect since Linux 2.6.25",
        "nfs(5), intr / nointr",
        "remove the option",
        lambda its: its.interruptible is True,
    ),
    Rule(
        "nolock",
        Severity.RISK,
        "with nolock a client's locks hold on this client only, so that two clients may write the same file at a time",
        "nfs(5), lock / nolock",
        "mount without nolock",
        lambda its: its.nolock is True and (its.vers is None or its.vers == "3"),
    ),
)
"""All rules, in the order in which warnings are shown within a severity."""


def firing(configuration: Configuration) -> tuple[Rule, ...]:
    """Return the rules that fire for a configuration, the most severe first."""
    order = list(Severity)
    fired = [rule for rule in RULES if rule.fires(configuration)]
    return tuple(sorted(fired, key=lambda rule: order.index(rule.severity)))
