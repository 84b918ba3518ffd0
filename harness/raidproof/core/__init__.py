"""Common code of all packages: errors, units, clocks and waiting, commands of this host, the log."""
