"""What holds for all tests of the harness itself."""

from hypothesis import settings

# What a newcomer and CI run is repeatable: the examples follow from the test alone. No test asserts a wall-clock time:
# the machine may be busy with something else.
settings.register_profile("repeatable", derandomize=True, deadline=None)
# `./raidproof test fuzz`: other examples at each run, more of them, and the line that repeats the one that failed.
settings.register_profile("fuzz", derandomize=False, deadline=None, max_examples=150, print_blob=True)
settings.load_profile("repeatable")
