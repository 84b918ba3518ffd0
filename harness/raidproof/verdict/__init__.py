"""Verdicts computed from recorded observations, without access to machines."""
