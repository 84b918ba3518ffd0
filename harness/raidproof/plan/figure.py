"""Published figures of a plan: what somebody else has measured, beside which the same cell of ours is put."""

from pydantic import Field

from raidproof.plan.table import Table


class Figure(Table):
    """One published figure."""

    name: str
    cell: str
    """The name of the cell that re-enacts it."""
    published: float = Field(gt=0)
    unit: str
    """As the harness names it: ``read_mb_s`` (10^6 bytes), ``write_iops``, ``transactions_s``."""
    source: str = ""
    places_limit: bool = False
    """Whether it set a limit of the hardware: then it proves nothing that it agrees."""
    note: str = ""
