"""Commands that describe raidproof: manual page, schemas, versions."""
