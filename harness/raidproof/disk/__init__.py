"""Member disks with a volatile write cache that lose power together, served over NBD by an nbdkit plugin.

Inside nbdkit the system's Python runs: the plugin and the modules that it imports use only the standard library.
"""
