"""What every room uses: errors, units, the clock and waiting, commands of this host, the log."""
