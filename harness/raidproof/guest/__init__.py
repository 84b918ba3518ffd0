"""Programs that are copied into machines. Each is one file of the standard library alone, for Python 3.9."""
