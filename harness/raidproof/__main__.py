"""The program of ``python -m raidproof``, which the launcher starts."""

import sys

from raidproof.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
