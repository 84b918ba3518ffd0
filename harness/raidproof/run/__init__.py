"""Execution of crash tests, plans, comparisons and the demo."""
