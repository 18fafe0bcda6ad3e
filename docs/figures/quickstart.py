"""Draw the figures of the quick start: train on `digits` as `make demo` does, and shrink what the run drew.

Run `python docs/figures/quickstart.py` from the repository's root. It writes `quickstart_roc.png` and
`quickstart_curves.png` beside this file.
"""

import tempfile
from pathlib import Path

from PIL import Image

from midam.cli import main as midam

WIDTHS = {"roc": 400, "curves": 760}


def main() -> None:
    """Train, then write the small figures."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "demo"
        if midam(["fit", "digits", "--num-instances", "4", "--seed", "0", "--out", str(run)]):
            raise SystemExit(1)
        for name, width in WIDTHS.items():
            with Image.open(run / f"{name}.png") as image:
                size = (width, round(width * image.height / image.width))
                small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
            small.quantize(128, dither=Image.Dither.NONE).save(
                Path(__file__).with_name(f"quickstart_{name}.png"), optimize=True
            )


if __name__ == "__main__":
    main()
