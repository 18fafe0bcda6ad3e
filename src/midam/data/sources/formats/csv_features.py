"""One ``.csv`` file a bag, as DSMIL writes them: a row an instance, a column a feature, in float32 or float64."""

from pathlib import Path

import numpy as np

from midam.data.sources.file_reader import FileReader
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.request import ImageOptions, Places
from midam.data.sources.table_files import check_header, first_line, sound_text
from midam.data.statistics import coarse
from midam.errors import BagDataError


class CsvReader(FileReader):
    """Numbers alone; the first line names the features if it holds a word, and is none if it counts them: 0, 1, ..."""

    what = "features"
    suffixes = (".csv",)
    maybe_table = True

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Read a file."""
        import pandas as pd

        with sound_text("a CSV with a row for each instance", path):
            words = first_line(path)
            numbers = [_number(word) for word in words]
            named, counted = None in numbers, numbers == list(range(len(numbers)))
            if named:
                check_header(words, path)
            frame = pd.read_csv(path, header=0 if named or counted else None, encoding="utf-8-sig")
        for column in frame.columns:
            if len(frame) and not pd.api.types.is_numeric_dtype(frame[column]):
                wrong = frame[column][pd.to_numeric(frame[column], errors="coerce").isna()]
                raise BagDataError(
                    f"Expected numbers alone, got {str(wrong.iloc[0])!r} in column {column!r} (in {path}); a CSV of "
                    "one bag holds nothing but features."
                )
        array = frame.to_numpy(dtype=np.float64)
        if not (len(array) and coarse(array.min(axis=0), array.max(axis=0)).any()):
            with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused when it is read
                array = array.astype(np.float32)
        return OpenFile(array, held=array.nbytes, names=words if named else None)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
