"""``python -m raidproof``: what the launcher runs."""

import sys

from raidproof.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
