"""Execution of crash tests, plans, comparisons, suites and the demo."""
