"""``python -m studies.sets [NAME]``: list the sets, or download one and print its path; exit code 2 without it."""

import sys

from midam.errors import MidamError
from studies.sets import catalog


def main(words: list[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        for name in words or catalog.names():
            location = catalog.describe(name)["location"]
            path = location or (catalog.fetch(name) if words else "not here")
            sys.stdout.write(f"{path}\n" if words else f"{name:24}{path}\n")
        return 0
    except (MidamError, OSError) as error:
        sys.stderr.write(f"studies.sets: error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
