"""A ledger of one operation at a time: no other operation's flush makes durable what this one's should have."""

from raidproof.workload.ledger import LedgerSpec

BLOCKS = 16
"""So few that each is overwritten again and again."""
QUIET_S = 0.005
"""Seconds without an operation after each: longer than the work that an operation may leave behind."""


def quiet(*kinds: str) -> LedgerSpec:
    """Return such a ledger of these kinds of operation, or of every kind."""
    return LedgerSpec(kinds=kinds or LedgerSpec().kinds, blocks=BLOCKS, files=BLOCKS, quiet_s=QUIET_S)
