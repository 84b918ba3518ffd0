"""Common code of all packages: errors, units, clock and waiting, host commands, the log."""
