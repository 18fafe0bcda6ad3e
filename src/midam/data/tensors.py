"""Instances as tensors that torch can compute with on every device."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.validate import LARGEST
from midam.errors import BagDataError

# Types that torch has few or no operations for, and the type that holds the same numbers.
_WIDER = {"u2": np.int32, "u4": np.int64, "u8": np.int64, "f16": np.float64, "f12": np.float64}


def instance_tensor(array: NDArray[Any]) -> Tensor:
    """Tensor of the same numbers, in native byte order; unsigned ones as signed ones that are wide enough.

    Examples
    --------
    >>> instance_tensor(np.array([1, 2**32 - 1], dtype=np.uint32))
    tensor([         1, 4294967295])
    """
    kind = _WIDER.get(f"{array.dtype.kind}{array.dtype.itemsize}", array.dtype.newbyteorder("="))
    if array.dtype == np.uint64 and array.size and array.max() > LARGEST:
        raise BagDataError(f"Expected whole numbers below 2^63, got {array.max()}; convert the features to float64.")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=kind))
