"""The command line, `midam COMMAND`; `midam.cli.app` lists the commands.

Options of `fit` are generated from `midam.settings`; ``--option-name`` and ``--option_name`` are the same.
"""

from midam.cli.app import main, parse

__all__ = ["main", "parse"]
