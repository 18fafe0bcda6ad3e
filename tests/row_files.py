"""A flat file of rows, as a store has one."""

import numpy as np

from midam.data.on_disk import RowFile


def row_file(path, array, **options):
    """Write an array to a new file and open it."""
    np.ascontiguousarray(array).tofile(path)
    return RowFile(path, shape=array.shape, dtype=array.dtype, **options)
