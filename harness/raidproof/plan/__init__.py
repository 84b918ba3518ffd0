"""Plans: TOML files with requests, and their expansion to a matrix of cells before any machine boots."""

from raidproof.plan.cell import Cell, Impossible, Matrix, matrix_of
from raidproof.plan.forecast import Visit, visits_of
from raidproof.plan.plan import Plan, load_plan, read_plan

__all__ = ["Cell", "Impossible", "Matrix", "Plan", "Visit", "load_plan", "matrix_of", "read_plan", "visits_of"]
