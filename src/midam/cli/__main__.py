"""``python -m midam.cli``."""

import sys

from midam.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
