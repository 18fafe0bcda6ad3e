"""Columns of a table about bags or patients, such as sex, age or site, for the figures of subgroups."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from warnings import warn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.sources.table_columns import require_columns
from midam.data.sources.table_files import read_names
from midam.errors import BagDataError
from midam.evaluate.subgroups import make_levels
from midam.names import name_of


@dataclass(frozen=True)
class SubgroupTable:
    """Some columns of a table whose rows are bags, their instances or patients.

    Attributes
    ----------
    path : Path
        CSV, TSV or Excel file, of which the first sheet is read.
    columns : sequence of str
        Columns to show.
    key : str, optional
        Column that names the bag or its group; default: the one that names the most.
    """

    path: Path
    columns: Sequence[str]
    key: str | None = None

    def levels(self, ids: NDArray[np.str_], groups: NDArray[np.str_] | None) -> dict[str, NDArray[np.str_]]:
        """Levels of each bag by the name of the column; a bag that the table does not know is "(missing)".

        Raises
        ------
        BagDataError
            If a column is missing, no row names a bag or group, or two rows of one differ.
        """
        frame = read_names(self.path)
        columns, named = [name_of(name) for name in self.columns], None if self.key is None else name_of(self.key)
        wanted = [*(("", name) for name in columns), ("bag_column", named)]
        require_columns(frame.columns, wanted, str(self.path))
        key, names = self._named(frame, named, ids, groups)
        known = frame[frame[key].isin(set(names.tolist()))]
        found = {}
        for name in columns:
            values = known.groupby(key, sort=False)[name].agg(lambda own: sorted(set(own.dropna())))
            for bag in values.index[values.map(len) > 1][:1]:
                raise BagDataError(
                    f"Expected one {name} for {bag}, got {' and '.join(values[bag][:2])} (in {self.path}); correct the "
                    "table, or choose another column."
                )
            by_name = {bag: own[0] if own else None for bag, own in values.items()}
            found[name] = make_levels([by_name.get(bag) for bag in names.tolist()])
        lost = int((~np.isin(names, known[key].to_numpy(dtype=np.str_))).sum())
        if lost:
            warn(
                f"{lost} of {len(names)} bags have no row (in {self.path}): they are '(missing)'",
                UserWarning,
                stacklevel=3,
            )
        return found

    def _named(
        self, frame: pd.DataFrame, key: str | None, ids: NDArray[np.str_], groups: NDArray[np.str_] | None
    ) -> tuple[str, NDArray[np.str_]]:
        """Column of the names, and what it names of each bag: the bag, or its group."""
        kinds = [ids] if groups is None else [ids, groups]
        others = [name for name in frame.columns if name not in set(map(name_of, self.columns))]
        columns = others if key is None else [key]
        counts = [
            (int(np.isin(names, frame[column].dropna().to_numpy(dtype=np.str_)).sum()), column, names)
            for names in kinds
            for column in columns
        ]
        most, column, names = max(counts, key=lambda count: count[0], default=(0, "", ids))
        if not most:
            raise BagDataError(
                f"Expected a column that names bags such as {ids[0]}, or their groups, got none (in {self.path}); add "
                "it, or name it with `bag_column`."
            )
        return column, names
