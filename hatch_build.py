"""Build hook: the README of the built package, whose relative links are made absolute.

In the repository they stay relative, so that they work in a clone, a fork, a branch and without a network.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#|/)([^)\s]+)\)")


def absolute_links(text: str, repository: str) -> str:
    """Markdown with its relative links and pictures as addresses at a repository on GitHub.

    Examples
    --------
    >>> absolute_links("![x](a.png) [y](docs/b.md#c) [z](https://d)", "https://e")
    '![x](https://e/raw/HEAD/a.png) [y](https://e/blob/HEAD/docs/b.md#c) [z](https://d)'
    """

    def absolute(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return _LINK.sub(absolute, text)


class AbsoluteLinks(MetadataHookInterface):
    """Sets the readme of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill the dynamic field."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        linked = absolute_links(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": linked}
