"""Measuring one cell of a plan: what has to stand for it, and one visit to it."""

from raidproof.run.cell.standing import Standing
from raidproof.run.cell.visit import visit

__all__ = ["Standing", "visit"]
