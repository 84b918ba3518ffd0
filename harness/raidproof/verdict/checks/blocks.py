"""The verdict on blocks of the ledger in a state that no promise allows."""

from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import BlockClass, ScanResult
from raidproof.verdict.check import LedgerCheck
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import CrashStateEvidence, Scan

BLOCKS = "blocks whole"
"""Name of the check that each block has content that a client wrote to this block."""


class Blocks(LedgerCheck):
    """Each block has content that a client wrote to this block."""

    name = BLOCKS
    rank = 30

    def judge_scan(self, scan: Scan, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        return [judge_blocks(scan.result, conditions, scan.place)]

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return the blocks in such a state."""
        return [wrong(BLOCKS, one.kind.value, str(one)) for scan in evidence.scans for one in scan.balance.corrupted]


def judge_blocks(evidence: ScanResult, conditions: Conditions, where: str) -> Verdict:
    """Judge that no block of the ledger is garbage, torn, misplaced or unreadable, or holds old data of the disk.

    No export option excuses such a block, except for torn blocks on an async export. Old data of the disk may be
    another user's; some file systems do not promise to hide them.
    """
    checker = f"{BLOCKS}, seen {where}"
    wrong = [BlockClass.MISPLACED, BlockClass.UNREADABLE, BlockClass.GARBAGE]
    if not (conditions.excused and conditions.torn):
        wrong.append(BlockClass.TORN)
    if not conditions.shows_old_data:
        wrong.append(BlockClass.OLD)
    counted = {kind.value: evidence.blocks[kind] for kind in wrong if evidence.blocks.get(kind)}
    if not counted:
        return Verdict(checker=checker, outcome=Outcome.PASS, reason="each block has content that a client wrote")
    reason = f"blocks of the ledger: {', '.join(f'{count:,} {kind}' for kind, count in counted.items())}"
    return Verdict(checker=checker, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))
