"""What stands on pages of Markdown."""

import re


def blocks(language: str, page: str) -> list[str]:
    """Blocks of code of a language, in the order of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
