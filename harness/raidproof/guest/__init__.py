"""Programs that run in a machine: standard library only, Python 3.9 or newer, each in a file of its own."""
