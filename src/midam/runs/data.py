"""Read and split bags by the settings of a run, and read columns of a table about bags for subgroups."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder, prepare
from midam.data.digests import bag_digests, set_digests
from midam.data.left_out import left_out_words
from midam.data.missing import warn_of_marks
from midam.data.sources import read_bags
from midam.data.sources.patients import file_kinds, pixel_sizes
from midam.data.sources.request import ImageOptions, RunOptions, SizesError
from midam.data.sources.table_columns import FILE_COLUMNS, GROUP_COLUMNS, find_column, require_columns
from midam.data.sources.table_files import read_names
from midam.data.splits import check_disjoint
from midam.errors import BagDataError, Note
from midam.evaluate.subgroups import make_levels
from midam.files import write_text
from midam.methods.names import usual_method
from midam.names import name_of
from midam.registry import FINE_TUNED
from midam.report.words import METRIC_NAMES
from midam.runs.folder import csv_text
from midam.runs.folds import choose_folds
from midam.runs.typical import ordinary_values
from midam.settings import Settings
from midam.targets import target_of

if TYPE_CHECKING:
    import pandas as pd

    from midam.imaging.network import Network


_MANY_BAGS = 20_000  # of more, a size that tells hardly anything is significant
_LOOKED = 224  # pixels of the side of slices that differ in size, for a look


@dataclass(frozen=True)
class SplitBags:
    """Labeled bags, and the split of each: `splits` [N] are "train", "val" or "test".

    If missing values were filled, `imputed` has the entries "how", "values" of the features, and "missing", the count
    of missing values. `gaps` [N, D] is the share of missing values in each bag. `columns` is the JSON text of the
    `ColumnCoder` that encoded columns. `missing` counts the missing values of each column that has some.

    With `folds` [N], which may be sites (`by_site`), models that have not seen a bag score it, and all bags train the
    model; `raw` are the bags before columns were encoded and gaps filled, if they were.
    """

    bags: Bags
    splits: NDArray[np.str_]
    imputed: dict[str, Any] | None = None
    gaps: NDArray[np.float32] | None = None
    columns: str | None = None
    missing: dict[str, int] | None = None
    folds: NDArray[np.int64] | None = None
    raw: Bags | None = None
    by_site: bool = False

    def part(self, name: str) -> Bags:
        """Return the bags of a split, which must not be empty."""
        return self.bags.subset(np.flatnonzero(self.splits == name))


def read_data(
    data: str,
    settings: Settings,
    *,
    require_labels: bool = True,
    network: "Network | None" = None,
    looks: bool = False,
    **more: Any,
) -> Bags:
    """Read bags with the columns and tables that the settings name, and `more` parameters of `read_bags`.

    Missing values that are to be imputed are NaN. Slices of several sizes are resized to the largest side of the
    `network`, or of the network of the encoder "fine-tuned", that they pass; a command that only `looks` at them
    resizes them too.
    """
    names = [name for name in Settings.names("data") if name not in ("time_features", "indicators")]
    options: dict[str, Any] = {name: getattr(settings.data, name) for name in names}
    options |= {"site_column": settings.run.site, "impute": settings.data.impute != "none", **more}
    options.setdefault("images", settings.cut)
    options |= {"reads": settings.run.reads, "require_labels": require_labels}
    try:
        return read_bags(data, **options)
    except SizesError:
        if network is None and settings.model.encoder == FINE_TUNED:
            from midam.imaging.networks import load_network  # needs torch
            from midam.imaging.pixels import USUAL_NETWORK

            network = load_network((settings.model.encoder_args or {}).get("network", USUAL_NETWORK))
        cut, sides = options["images"], None if network is None else network.sides
        sides = (_LOOKED, _LOOKED) if looks and network is None else sides
        if sides is None or cut.volume or cut.spacing or isinstance(cut, RunOptions):
            raise
        text = f"slices of several sizes are resized to {sides[1]} x {sides[1]} pixels, in their proportions, for"
        to = "this look at them" if looks else "the network"
        warnings.warn(f"{text} {to}; `slice_size` sets another size (in {data})", Note, stacklevel=2)
        return read_bags(data, **options | {"images": ImageOptions(**cut.model_dump() | {"slice_size": sides[1]})})


def split_data(bags: Bags, settings: Settings, *, folds: NDArray[np.int64] | None = None) -> SplitBags:
    """Split bags by the splits of the data, or at random if there are none: stratified by label, disjoint by group.

    With `folds` [N], all bags train the model.

    If the data name splits but no validation bags, a random part of the training bags becomes the validation bags.
    Categories and times are encoded and missing values filled by the settings, with codes and values of the training
    bags.

    Raises
    ------
    BagDataError
        If there are no training bags, or a class is missing in the training bags or in a random split.
    LeakageError
        If a group is in two splits and the settings do not allow it.
    """
    target = target_of(bags)
    target.check(bags)
    target.check_rule(settings.run.threshold)
    run, values = settings.run, target.values(bags)
    if folds is not None:
        splits = np.full(len(bags), "train", dtype="<U5")
    elif bags.splits is None:
        shares = (1 - run.val_fraction - run.tested, run.val_fraction, run.tested)
        splits = target.split(values, groups=bags.groups, fractions=shares, seed=run.seed)
    else:
        splits = bags.splits.astype("<U5")
        if not (splits == "train").any():
            raise BagDataError(f"Expected training bags, got none (in {bags.source}); name a split 'train'.")
        if not (splits == "val").any() and run.val_fraction > 0:
            inside = np.flatnonzero(splits == "train")
            groups = None if bags.groups is None else bags.groups[inside]
            shares = (1 - run.val_fraction, run.val_fraction, 0.0)
            splits[inside] = target.split(values[inside], groups=groups, fractions=shares, seed=run.seed)
    if bags.groups is not None:
        check_disjoint(splits if bags.splits is None else bags.splits, bags.groups, allow_leakage=run.allow_leakage)
    target.check(SplitBags(bags, splits).part("train"))
    for name in ("val", "test"):
        part_values = values[splits == name]
        if len(part_values) and not target.has_metric(part_values):
            metric = METRIC_NAMES.get(target.metric, target.metric)
            message = f"the {name} labels order no bags (in {bags.source}): no {metric} can be computed there"
            warnings.warn(message, stacklevel=2)
    prepared = prepare(bags, settings.data, train=np.flatnonzero(splits == "train"), note=True)
    parts = SplitBags(prepared.bags, splits, prepared.imputed, prepared.gaps, prepared.columns, prepared.missing)
    raw = None if folds is None or prepared.bags is bags else bags
    return replace(parts, folds=folds, raw=raw, by_site=folds is not None and run.site is not None)


def divided(bags: Bags, settings: Settings, *, at_once: bool) -> SplitBags:
    """Give bags folds, or split them, as the settings and their number say; `at_once` is as in `choose_folds`."""
    return split_data(bags, settings, folds=choose_folds(bags, settings, at_once=at_once))


def warn_of_leaks(parts: SplitBags) -> None:
    """Warn of what reveals the label of bags, or spoils a test: features, sizes, equal bags, vectors of two networks.

    Features and bag sizes are checked in the training bags.
    """
    from midam.report import leaks

    columns = None if parts.columns is None else ColumnCoder.from_json(parts.columns).column_of
    bags, train, training = parts.bags, parts.part("train").replace(groups=None), parts.splits == "train"
    raw, gaps = bags if parts.raw is None else parts.raw, None if parts.gaps is None else parts.gaps[training]
    sizes = leaks.size_warnings(train) if len(train) <= _MANY_BAGS else ()
    of_train = (leaks.feature_warnings(train, gaps, columns), sizes)
    for lines in (*of_train, leaks.duplicate_warnings(bags), leaks.overlap_warnings(raw), leaks.mixture_warnings(bags)):
        if line := "; ".join(lines):
            warnings.warn(f"{line} (in {bags.source})", stacklevel=3)
    warn_of_marks(raw)


def write_left_out(bags: Bags, path: Path) -> None:
    """Write the list of files and bags that were left out; if there are none, remove the list of an earlier call."""
    rows = [{**row._asdict(), "files_kept": row.kept} for row in bags.left_out]
    columns = ("bag", "file", "reason", "files_kept")
    if rows:
        write_text(path, csv_text(columns, rows))
    elif path.is_file() and path.read_bytes().startswith(csv_text(columns, rows).encode()):
        path.unlink()


def left_out_notes(bags: Bags, name: str) -> list[str]:
    """Return a note on the number of left-out files and bags and on the file that lists them; none if all were read."""
    return [f"{left_out_words(bags.left_out)} are left out: {name} lists them"] if bags.left_out else []


def _warn_of_copies(parts: SplitBags, digests: list[str], nearest: Mapping[str, str | int]) -> None:
    """Warn of bags with the same instances as a bag of a split nearer to training, `nearest`, or of an earlier fold."""
    which, where = ("validation or test bags", "split") if parts.folds is None else ("bags", "fold")
    places: list[Any] = (parts.splits if parts.folds is None else parts.folds).tolist()
    if parts.folds is not None:
        nearest = dict(sorted(zip(digests, places), key=lambda pair: pair[1], reverse=True))
    copies = np.flatnonzero([place != nearest[digest] for digest, place in zip(digests, places)])
    if len(copies):
        text = f"{len(copies)} {which} have the same instances as a bag in an earlier {where}, first"
        text += f" {parts.bags.ids[copies[0]]}: results of these {where}s are too good; put equal bags into one group"
        warnings.warn(f"{text} (in {parts.bags.source})", stacklevel=3)


def describe_origin(parts: SplitBags) -> dict[str, Any]:
    """Return the origin of a run's data, which is stored so that its bags and patients never count as new later.

    "data" holds source, path, fingerprint and form of the data. "splits" maps the id of each bag to its split, and
    "contents" the digests of its instances, in order and as a set (for equal bags, to the split nearest to training).
    "groups" maps each group of the training and validation bags to its split, "train" if some of its bags are there.
    """
    from midam.imaging.pixels import pixel_facts, pixel_span

    bags, names = parts.bags, parts.bags.feature_names
    digests, sets = bag_digests(bags), set_digests(bags)
    contents: dict[str, str] = {}
    for name in ("test", "val", "train"):
        contents |= {each[i]: name for each in (digests, sets) for i in np.flatnonzero(parts.splits == name)}
    _warn_of_copies(parts, sets, contents)
    members = {} if bags.groups is None else {name: bags.groups[parts.splits == name] for name in ("val", "train")}
    data: dict[str, Any] = {"source": bags.source, "place": str(Path(bags.source).resolve())}
    data |= {"fingerprint": bags.fingerprint(), "instance_shape": list(bags.instance_shape)}
    if len(bags.instance_shape) > 1:
        data |= pixel_facts(bags) | {"spans": [pixel_span(bags, quantile=at) for at in (0.0, 1.0)]}
    data["file_kinds"] = {name: sorted(kinds) for name, kinds in file_kinds(bags).items()}
    data["pixel_mm"] = pixel_sizes(bags)
    if bags.outcome is not None:
        data["outcome"] = {"target": bags.outcome.target, "names": list(bags.outcome.names)}
    return {
        "data": {
            **data,
            "classes": None if bags.classes is None else list(bags.classes),
            "feature_names": None if names is None else list(names),
            "cut": bags.cut,
            "imputed": parts.imputed,
            "columns": parts.columns,
            **ordinary_values(bags.subset(np.flatnonzero(parts.splits == "train")), parts.columns),
        },
        "splits": {str(bag): str(split) for bag, split in zip(bags.ids, parts.splits)},
        "contents": contents,
        "groups": {str(group): name for name, groups in members.items() for group in groups},
    }


class Reading(NamedTuple):
    """Bags of a run with their splits, the result of `describe_origin`, and warnings from reading the bags.

    `settings` hold the number of `folds` that was chosen, and `method` the name of a method that is fitted in one step.
    """

    parts: SplitBags
    origin: dict[str, Any]
    notes: list[str]
    settings: Settings
    method: str | None


def split_parts(
    data: str, settings: Settings, *, left_out: str, method: str | None = None, choose: bool = False
) -> Reading:
    """Read the bags of a run, and split them or give them folds.

    A note names `left_out`, the file of the run that lists left-out files and bags. `method` is a method that is fitted
    in one step; with `choose`, it is the usual one of these bags.
    """
    with noting() as notes:
        bags = read_data(data, settings)
        if choose:
            method = usual_method(bags, settings)
        parts = divided(bags, settings, at_once=method is not None)
        origin = describe_origin(parts)
        warn_of_leaks(parts)
    if settings.run.site is None:
        settings = settings.replace(folds=0 if parts.folds is None else len(np.unique(parts.folds)))
    return Reading(parts, origin, notes + left_out_notes(parts.bags, left_out), settings, method)


@contextmanager
def noting() -> Iterator[list[str]]:
    """Yield a list that collects the warnings shown inside the context."""
    notes = list[str]()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def noted(message: Warning | str, *where: Any, **options: Any) -> None:
            notes.append(str(message))
            show(message, *where, **options)

        warnings.showwarning = noted
        yield notes


@dataclass(frozen=True)
class SubgroupTable:
    """Columns of a table whose rows are bags, instances or patients.

    Attributes
    ----------
    path : Path
        CSV, TSV or Excel file (first sheet).
    columns : sequence of str
        Columns to show.
    key : str, optional
        Column that names the bag or its group; default: the column with the most names of bags or groups.
    """

    path: Path
    columns: Sequence[str]
    key: str | None = None

    def levels(self, ids: NDArray[np.str_], groups: NDArray[np.str_] | None) -> dict[str, NDArray[np.str_]]:
        """Return the level of each bag by column name; the level of a bag without a row in the table is "(missing)".

        Raises
        ------
        BagDataError
            If a column is missing, no row names a bag or group, or two rows of one bag or group differ.
        """
        frame, where = read_names(self.path), str(self.path)
        columns = [*dict.fromkeys(map(name_of, self.columns))]
        key_column = None if self.key is None else name_of(self.key)
        require_columns(frame.columns, [*(("", name) for name in columns), ("bag_column", key_column)], where)
        others = [*frame.columns.difference(columns, sort=False)] if key_column is None else [key_column]
        pairs = [(key, names) for names in (ids, groups) if names is not None for key in others]
        counts = [np.isin(names, frame[key].dropna().to_numpy(dtype=np.str_)).sum() for key, names in pairs]
        usual = [find_column(frame[[key]], FILE_COLUMNS if names is ids else GROUP_COLUMNS) for key, names in pairs]
        if not any(counts):
            raise BagDataError(
                f"Expected a column that names bags such as {ids[0]}, or their groups, got none (in {where}); add it, "
                "or name it with `bag_column`."
            )
        # Bags and patients may have the same numbers: then the name of the column decides.
        key, names = pairs[max(range(len(pairs)), key=lambda at: (counts[at], usual[at] is not None))]
        matched = frame[frame[key].isin(names)]
        for name in columns:
            _refuse_conflicts(matched, key, name, where)
        missing = int((~np.isin(names, matched[key].to_numpy(dtype=np.str_))).sum())
        if missing:
            warn(f"{missing} of {len(names)} bags have no row (in {where}): they are '(missing)'", stacklevel=3)
        table = matched.groupby(key, sort=False)[columns].first().reindex(names.tolist())
        return {name: make_levels(table[name].tolist()) for name in columns}


def _refuse_conflicts(frame: "pd.DataFrame", key: str, column: str, where: str) -> None:
    """Refuse several values of a column under one key."""
    counts = frame.groupby(key, sort=False)[column].nunique()
    for name in counts.index[counts > 1][:1]:
        values = frame.loc[frame[key] == name, column].dropna().unique()
        got = f"{values[0]} and {values[1]} (in {where}); correct the table."
        raise BagDataError(f"Expected one {column} for {name}, got {got}")
