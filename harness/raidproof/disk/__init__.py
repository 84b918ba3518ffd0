"""Member disks with a volatile write cache that lose power together, served over NBD by an nbdkit plugin.

Inside nbdkit the system's Python runs: cache, sparse_image, writelog, engine, control, messages and plugin import
only the standard library, and modules of the harness that do so too.
"""
