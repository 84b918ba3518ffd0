"""Plans: TOML files, and their expansion into a matrix of cells before any machine boots."""

from raidproof.plan.cell import Cell, Impossible, Matrix, matrix_of
from raidproof.plan.forecast import PlannedRepetition, repetitions_of
from raidproof.plan.plan import Plan, load_plan, read_plan

__all__ = [
    "Cell",
    "Impossible",
    "Matrix",
    "Plan",
    "PlannedRepetition",
    "load_plan",
    "matrix_of",
    "read_plan",
    "repetitions_of",
]
