"""A ledger of one operation at a time: no other operation's flush makes durable what this one's should have."""

from collections.abc import Iterable

from raidproof.workload.ledger import LedgerSpec

BLOCKS = 16
"""So few that each is overwritten again and again."""
QUIET_S = 0.005
"""Seconds without an operation after each: longer than the work that an operation may leave behind."""


def quiet(*workers: str, omit: Iterable[str] = ()) -> LedgerSpec:
    """Return such a ledger with these kinds of workers, or all, of which none does what is left out."""
    left_out = (*LedgerSpec().omit, *omit)
    kinds = workers or LedgerSpec().kinds
    return LedgerSpec(kinds=kinds, omit=left_out, blocks=BLOCKS, files=BLOCKS, quiet_s=QUIET_S)
