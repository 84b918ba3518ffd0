"""Judges whether something changed: between two sides or runs, over time, and since which version."""
