"""Programs that run inside machines: one file or folder each, standard library only, Python 3.9 or newer."""
