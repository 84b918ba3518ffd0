"""Reports from the records of runs: on a terminal, as HTML pages, and as files for other programs.

The package itself imports nothing: `raidproof ls` needs only `run_list`.
"""
