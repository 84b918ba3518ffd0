"""Measuring one cell of a plan: what has to stand for it, and one visit to it."""

from harness.cell.standing import Standing
from harness.cell.visit import visit

__all__ = ["Standing", "visit"]
