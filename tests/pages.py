"""What stands on pages of Markdown."""

import re


def blocks(language: str, page: str) -> list[str]:
    """Blocks of code of a language, in the order of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


_WALK = re.compile(r"^## Walk-through: ([^\n]*)\n(.*?)(?=^## |\Z)", flags=re.MULTILINE | re.DOTALL)


def walk_throughs(page: str) -> list[tuple[str, str]]:
    """Heading and text of each section that runs block after block, its commands included."""
    return _WALK.findall(page)


def without_walk_throughs(page: str) -> str:
    """Return the page but for these sections."""
    return _WALK.sub("", page)
