"""Type and depth of the pixels of bags, which a run expects of later files."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.validate import row_chunks
from midam.errors import BagDataError
from midam.nn.standardizer import bits_of


def pixel_facts(bags: Bags) -> dict[str, Any]:
    """Return the type of the pixels of bags, float32 for all floats, and the bits that hold the brightest pixel.

    With the window in `Bags.cut`, this says how pixels become intensities: readers have turned files with white as
    zero, and have applied slopes and intercepts.
    Numbers with a sign, and floats, have the bits of the type. `RECIPE` ends with these keys.
    """
    kind = bags.instances.dtype if bags.instances.dtype.kind != "f" else np.dtype(np.float32)
    bits = 1 if kind.kind in "bu" else 8 * kind.itemsize
    chunks = (part for i in range(len(bags)) for part in row_chunks(bags.instances, bags.starts[[i]], bags.sizes[[i]]))
    while bits < 8 * kind.itemsize and (part := next(chunks, None)):  # bag by bag: mostly the first image says all
        bits = max(bits, bits_of(int(np.max(bags.instances[slice(*part)]))))
    return {"pixels": kind.name, "bits": bits}


def check_pixels(bags: Bags, known: Mapping[str, Any], *, run: str) -> None:
    """Refuse pixels of another type, or of more bits, than the `pixel_facts` of a run; warn of fewer bits."""
    if "pixels" not in known:
        return
    kind, bits = pixel_facts(bags).values()
    if kind != known["pixels"] or bits > known["bits"]:
        raise BagDataError(
            f"Expected pixels of {known['pixels']} with {known['bits']} bits, on which {run} was trained, got {kind} "
            f"with {bits} (in {bags.source}); convert the files, or train on files like these."
        )
    if bits < known["bits"]:
        text = f"the brightest pixel has {bits} bits, in the training of {run} {known['bits']} (in {bags.source})"
        warnings.warn(f"{text}: if these files have another depth, their scores are wrong; convert them", stacklevel=3)
