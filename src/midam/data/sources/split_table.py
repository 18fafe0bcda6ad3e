"""Split tables: CLAM's, Patho-Bench's, or any CSV with a column of names and one of splits."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.left_out import lost_bags
from midam.data.sources import table_columns as tables
from midam.data.sources.file_names import NameIndex
from midam.data.sources.formats.open_file import require_file
from midam.data.sources.patients import barcodes
from midam.data.sources.request import Request
from midam.data.sources.table_files import read_names
from midam.data.validate import SPLITS, split_array
from midam.errors import BagDataError, ConfigError, DataNotFoundError, given, listed
from midam.lazy_imports import pandas as pd
from midam.names import on_disk

_TRUE = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


def read_splits(bags: Bags, request: Request) -> NDArray[np.str_]:
    """Return the split of each bag in the `split_file` of a request: "train", "val" or "test", or "" for none.

    The table is a file, or the `splits_K.csv` of a `fold` in a folder (CLAM). A fold may also be one of its columns
    `fold_K`, or a number in its column `fold`, whose rows are the test set. The table names bags, or their patients in
    the column `groups` of the request. Unknown names are refused, or skipped if the request skips missing files; names
    of bags that were left out are skipped.
    """
    fold, group, bag, ids = request.fold, request.groups, request.bag_column, bags.ids.tolist()
    path = _table_of(on_disk(str(request.split_file)), fold)
    where, name_column = str(path), ""
    frame = tables.with_groups(_by_fold(read_names(path)), request.changed(named=where, require_labels=False))
    if group in frame.columns:  # a part alone does not name a group
        frame = frame.drop(columns=[name for name in tables.group_parts(group) if name in frame and name != group])
    lowered = {str(name).lower(): str(name) for name in frame.columns}
    folds = sorted(int(name[5:]) for name in lowered if re.fullmatch(r"fold_\d+", name))
    groups = barcodes(ids) if bags.groups is None else bags.groups.tolist()
    names = NameIndex(ids, source=bags.source)
    patients = None if groups is None else NameIndex(sorted(set(groups)), source=bags.source)
    if not folds and fold is not None and not _numbered(path):
        raise ConfigError(
            f"Expected columns fold_0, fold_1, ..., or fold, with `fold`, got {', '.join(map(str, frame.columns))} "
            f"(in {where}); rename them, or leave `fold` out."
        )
    if {"train", "test"} <= lowered.keys() or {"train", "val"} <= lowered.keys():
        pairs = _clam_pairs(frame, {name: lowered[name] for name in SPLITS if name in lowered}, where)
    else:
        column = _split_column(lowered, folds, fold, where)
        frame = frame.dropna(subset=[column])
        values = [frame[name].dropna() for name in frame.columns if name != column]
        most = max([names, *filter(None, [patients])], key=lambda index: max(map(index.count, values), default=0))
        of_bags = bag if bag in frame and names.count(frame[bag].dropna()) else None
        name_column = tables.find_file_column(frame, most, of_bags, avoid=(column,), where=where)
        pairs = list(zip(frame[name_column], split_array(frame[column].tolist(), (), where).tolist()))
    named, keys, known = names, ids, names.count(n for n, _ in pairs)
    # Bags and patients may have the same numbers: then the name of the column decides.
    of_patients = name_column in (group, tables.find_column(frame, tables.GROUP_COLUMNS))
    if patients is not None and name_column != bag and patients.count(n for n, _ in pairs) + of_patients > known:
        named, keys = patients, groups or ids
    lost = NameIndex(lost_bags(request.left_out))
    pairs = [pair for pair in pairs if lost.certain(pair[0]) is None or named.certain(pair[0]) is not None]
    splits = _spread(pairs, named, skip_missing=request.missing == "skip", where=where)
    return np.array([splits.get(str(key), "") for key in keys], dtype="<U5")


def fold_numbers(path: str | Path) -> list[int]:
    """Return the numbers of the folds in a split table, or in a folder of them; empty for a table of one split."""
    path = on_disk(path)
    if path.is_dir():
        return sorted({int(number) for file in path.glob("splits_*.csv") if (number := _numbered(file)) is not None})
    names = (str(name).lower() for name in _by_fold(read_names(path)).columns)
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"fold_\d+", name))


def _by_fold(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with a column for each fold instead of a column of numbers `fold`, whose rows are test sets."""
    column = tables.find_column(frame, ["fold"])
    known = [] if column is None else frame[column].dropna().unique().tolist()
    if column is None or not known or not all(re.fullmatch(r"\d+(\.0+)?", number) for number in known):
        return frame
    numbers = frame[column].astype(float)
    folds = {f"fold_{int(float(at))}": np.where(numbers == float(at), "test", "train") for at in known}
    return frame.drop(columns=column).assign(**folds).mask(numbers.isna())


def _table_of(path: Path, fold: int | None) -> Path:
    """Return the table itself, or the table of the fold in a folder."""
    if path.is_dir():
        names = listed(sorted(p.name for p in path.glob("splits_*.csv") if _numbered(p)), most=10) or "none"
        if fold is None:
            raise ConfigError(f"Expected `fold` with a folder of splits, got none; choose one of {names} (in {path}).")
        for name in (f"splits_{fold}.csv", f"splits_{fold}_bool.csv"):
            if (path / name).is_file():
                return path / name
        raise DataNotFoundError(f"Expected splits_{fold}.csv, got {names} (in {path}); choose another fold.")
    require_file(path, "a split table")
    number = _numbered(path)
    if number and fold is not None and int(number) != fold:
        raise ConfigError(
            f"Expected fold {number} with {path.name}, got {given(fold=fold)}; name the folder, or leave `fold` out."
        )
    return path


def _numbered(path: Path) -> str | None:
    match = re.fullmatch(r"splits_(\d+)(_bool)?", path.stem)
    return None if match is None else match[1]


def _clam_pairs(frame: "pd.DataFrame", columns: dict[str, str], where: str) -> list[tuple[str, str]]:
    """Return names and splits of CLAM's table: a column per split, of names or of truth values next to an index."""
    values = {value.lower() for column in columns.values() for value in frame[column].dropna()}
    if not values <= _TRUE.keys():
        return [(name, split) for split, column in columns.items() for name in frame[column].dropna()]
    index = str(frame.columns[0])
    if index in columns.values():
        raise BagDataError(f"Expected a first column with names, got {index!r} (in {where}); write the index too.")
    pairs = []
    for row in frame.to_dict("records"):
        chosen = [split for split, column in columns.items() if _TRUE.get(str(row[column]).lower(), False)]
        if len(chosen) > 1:
            raise BagDataError(f"Expected one split, got {' and '.join(chosen)} (in {where}, {row[index]}); take one.")
        pairs += [(str(row[index]), split) for split in chosen]
    return pairs


def _split_column(lowered: dict[str, str], folds: list[int], fold: int | None, where: str) -> str:
    if folds:
        if fold not in folds:
            known = ", ".join(map(str, folds))
            raise ConfigError(f"Expected `fold` as one of {known}, got {fold} (in {where}); choose a fold.")
        return lowered[f"fold_{fold}"]
    if "split" not in lowered:
        got = f"{', '.join(lowered.values())} (in {where}); rename them"
        raise BagDataError(f"Expected columns train, val, test, or fold_0, ..., or split, got {got}.")
    return lowered["split"]


def _spread(pairs: list[tuple[str, str]], named: NameIndex, *, skip_missing: bool, where: str) -> dict[str, str]:
    """Return the split of each bag or patient from the splits of names."""
    splits: dict[str, str] = {}
    unknown = []
    for name, split in pairs:
        position = named.find(name)
        if position is None:
            unknown.append(name)
            continue
        first = splits.setdefault(named.names[position], split)
        if first != split:
            got = f"{first} and {split}"
            raise BagDataError(f"Expected one split for {name}, got {got} (in {where}); correct the table.")
    if (unknown and not skip_missing) or not splits:
        got = f"{len(unknown)} unknown: {listed(unknown)} (in {where})"
        advice = f"correct the table, or leave such names out with {given(missing='skip')}"
        raise BagDataError(f"Expected names of bags of {named.source}, got {got}; {advice}.")
    return splits
