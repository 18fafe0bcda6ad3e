"""The command line: `midam fit | predict | evaluate | compare | data | paper`.

Options of `fit` are generated from `midam.settings`; ``--option-name`` and ``--option_name`` are the same.
Exit codes: 0 done, 1 a damaged store, 2 bad input or settings, 130 stopped by Ctrl-C or SIGTERM.
"""

from midam.cli.app import main, parse

__all__ = ["main", "parse"]
