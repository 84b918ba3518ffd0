"""`raidproof advise`: the search for a better configuration, and its execution."""
