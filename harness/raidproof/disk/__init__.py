"""Member disks that keep a volatile write cache and lose power together, served over NBD by an nbdkit plugin.

What runs inside nbdkit is the system's Python: cache, platter, writelog, engine, control, messages and plugin import
nothing beyond the standard library.
"""
