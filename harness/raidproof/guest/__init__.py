"""Programs that run inside a machine: one file each, standard library only, Python 3.9 or newer."""
