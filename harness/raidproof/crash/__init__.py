"""Crash states: the power cuts that a recorded run could have had, what each leaves, and what each loses."""
