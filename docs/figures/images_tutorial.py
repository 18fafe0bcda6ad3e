"""Draw the figures of the walk-through on images: run its code, and shrink what it drew.

Run `PYTHONPATH=. python docs/figures/images_tutorial.py` from the repository's root. It writes
`images_tutorial.jpg` and `images_tutorial_why.jpg` beside this file.
"""

import os
import re
import shlex
import tempfile
from pathlib import Path

from PIL import Image
from tests.pages import walk_throughs

from midam.cli import main as midam

PAGE = Path(__file__).resolve().parents[1] / "images.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
WIDTH, TOP = 760, 885  # pixels of a figure, and of the picture of explain down to its map


def main() -> None:
    """Run the walk-through, then write the small figures."""
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names: dict[str, object] = {}
        for language, code in BLOCK.findall(dict(walk_throughs(PAGE.read_text(encoding="utf-8")))["images"]):
            if language == "python":
                exec(compile(code, str(PAGE), "exec"), names)
            elif any(midam(shlex.split(line)[1:]) for line in code.splitlines()):
                raise SystemExit(1)
        row = Image.new("RGB", (4 * 256 + 3 * 8, 256), "white")
        for number in range(4):
            row.paste(Image.open(f"images/image{number:02d}.png"), (number * 264, 0))
        why = Image.open("why/image01.png").convert("RGB")
        why = why.crop((0, 0, why.width, TOP))
        for image, name in ((row, ""), (why, "_why")):
            small = image.resize((WIDTH, round(WIDTH * image.height / image.width)), Image.Resampling.LANCZOS)
            small.save(here / f"images_tutorial{name}.jpg", quality=88, optimize=True)


if __name__ == "__main__":
    main()
