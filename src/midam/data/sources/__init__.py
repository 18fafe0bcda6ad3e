"""Readers of bags, by catalogue name or by file."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from midam.data import catalog
from midam.data.bags import Bags
from midam.data.sources.npz import read_npz
from midam.data.sources.table import read_table
from midam.errors import ConfigError, DataNotFoundError

__all__ = ["read_bags"]

_TABLES = (".csv", ".tsv", ".parquet")


def read_bags(
    path_or_name: str | Path,
    *,
    bag_column: str = "bag",
    label_column: str = "label",
    group_column: str | None = None,
    split_column: str | None = None,
    coord_columns: Sequence[str] = (),
    ignore_columns: Sequence[str] = (),
    require_labels: bool = True,
) -> Bags:
    """Read bags from the catalogue or from a file.

    Parameters
    ----------
    path_or_name : str or Path
        A catalogue name (`midam.data.catalog.names`), or the path of an ``.npz``, ``.csv``, ``.tsv`` or ``.parquet``
        file.
    bag_column, label_column, group_column, split_column, coord_columns, ignore_columns
        Of a table; see `midam.data.sources.table.read_table`.
    require_labels : bool, default True
        Refuse a file without labels. False, as for prediction, also ignores column names that do not apply.

    Returns
    -------
    Bags
        The bags, checked.

    Raises
    ------
    DataNotFoundError
        If there is neither such a file nor such a name; the message lists near names.
    BagDataError
        If the data cannot be used; the message names file, column and bag.
    ConfigError
        If columns are named for what is no table.

    Examples
    --------
    >>> len(read_bags("digits"))
    360
    """
    name, path = str(path_or_name), Path(path_or_name)
    suffix = path.suffix.lower()
    if suffix in _TABLES and name not in catalog.CATALOG:
        return read_table(
            path,
            bag_column=bag_column,
            label_column=label_column,
            group_column=group_column,
            split_column=split_column,
            coord_columns=coord_columns,
            ignore_columns=ignore_columns,
            require_labels=require_labels,
        )
    if require_labels and (
        (bag_column, label_column) != ("bag", "label")
        or group_column
        or split_column
        or coord_columns
        or ignore_columns
    ):
        raise ConfigError(
            f"Expected column names with a table only, got some for {name}; leave them out. An npz file holds groups "
            "and splits under the keys group and split."
        )
    if name in catalog.CATALOG:
        return catalog.load(name)
    if suffix == ".npz":
        return read_npz(path, require_labels=require_labels)
    near = difflib.get_close_matches(name, catalog.names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"names in the catalogue: {', '.join(catalog.names())}."
    raise DataNotFoundError(f"Expected a catalogue name or a .npz, .csv, .tsv or .parquet file, got {name!r}; {hint}")
