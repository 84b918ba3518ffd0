"""A quiet ledger does one operation at a time, so that the flush of another operation cannot hide a missing flush."""

from collections.abc import Iterable

from raidproof.workload.ledger import LedgerSpec

BLOCKS = 16
"""Number of blocks in each file of the ledger: few, so that each block is overwritten many times."""
QUIET_S = 0.005
"""Pause after each operation in seconds: longer than any asynchronous work that an operation causes."""


def quiet(*workers: str, omit: Iterable[str] = ()) -> LedgerSpec:
    """Return a quiet ledger with these kinds of workers (default: all), without the operations in ``omit``."""
    left_out = (*LedgerSpec().omit, *omit)
    kinds = workers or LedgerSpec().kinds
    return LedgerSpec(kinds=kinds, omit=left_out, blocks=BLOCKS, files=BLOCKS, quiet_s=QUIET_S)
