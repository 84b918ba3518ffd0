"""Measuring one cell of a plan: what has to stand for it, and one visit to it."""

from raidproof.run.cell.stack_deployer import StackDeployer
from raidproof.run.cell.visit import visit

__all__ = ["StackDeployer", "visit"]
