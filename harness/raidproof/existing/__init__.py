"""An existing server: what its files and commands report, and the plan that re-creates it."""
