"""One ``.pt`` file a bag, of torch; what a file holds is never executed."""

import pickle
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_reader import FileReader
from midam.data.sources.formats.open_file import COORDS, FEATURE_NAMES, Column, OpenFile, pick_features, sound, squeezed
from midam.data.sources.request import ImageOptions, Places
from midam.errors import BagDataError
from midam.reading import check_archive

if TYPE_CHECKING:
    from torch import Tensor

_PLAIN = (
    *("float16", "bfloat16", "float32", "float64", "bool"),
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
)


class TensorReader(FileReader):
    """A tensor [n, D], or a dictionary of ``features`` or ``feats`` and ``coords``; mapped if torch >= 1.6 wrote it."""

    what = "features"
    suffixes = (".pt",)

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a file."""
        import torch

        with sound("a whole .pt file", path, advice="write the file again"):
            mapped = zipfile.is_zipfile(path)
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
            except pickle.UnpicklingError as error:
                raise BagDataError(
                    f"Expected tensors and plain containers alone, got other Python objects, which were not loaded, or "
                    f"damage (in {path}); save the features again: torch.save(tensor, path)."
                ) from error
        tensors = content if isinstance(content, dict) else {"features": content}
        features, coords = pick_features(tensors, path), tensors.get(COORDS)
        parts = [features] if coords is None else [features, coords]
        for tensor in parts:
            if not isinstance(tensor, torch.Tensor) or not _is_plain(tensor):
                kind = (
                    f"{tensor.dtype} on {tensor.device}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                )
                raise BagDataError(
                    f"Expected a dense tensor [n, D] of plain numbers, got {kind} (in {path}); save the features as "
                    "one tensor of float32."
                )
        return OpenFile(
            _column(features),
            None if coords is None else _column(coords),
            held=0 if mapped else sum(tensor.untyped_storage().nbytes() for tensor in parts),
            names=tensors.get(FEATURE_NAMES),
        )

    def verify(self, path: Path) -> None:
        """Compare the checksums, which torch passes over."""
        with sound("a whole .pt file", path, advice="write the file again"):
            if zipfile.is_zipfile(path):
                check_archive(path)


class _BFloat16:
    """Rows of a tensor of bfloat16, which NumPy lacks, as float32."""

    def __init__(self, tensor: "Tensor") -> None:
        self._tensor, self.shape, self.dtype = tensor, tuple(tensor.shape), np.dtype(np.float32)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        return self._tensor[index].float().numpy()


def _is_plain(tensor: "Tensor") -> bool:
    """Whether NumPy, or `_BFloat16`, has the same numbers in memory."""
    strange = (
        tensor.is_quantized or tensor.is_nested or str(tensor.layout) != "torch.strided" or tensor.device.type != "cpu"
    )
    return not strange and tensor.ndim > 0 and _kind(tensor) in _PLAIN


def _column(tensor: "Tensor") -> Column:
    # A view such as x.conj().imag says in a bit that its numbers are to be negated.
    tensor = squeezed(tensor.detach().resolve_neg())
    return _BFloat16(tensor) if _kind(tensor) == "bfloat16" else tensor.numpy()


def _kind(tensor: "Tensor") -> str:
    """Name of the type of its numbers: float32."""
    return str(tensor.dtype).removeprefix("torch.")
