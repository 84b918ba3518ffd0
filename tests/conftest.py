"""What holds for all tests of the harness itself."""

from hypothesis import settings

# No test asserts a wall-clock time: the machine may be busy with something else.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
