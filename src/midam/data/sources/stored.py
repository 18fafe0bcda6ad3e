"""Input that needs no conversion: a store, with its own labels or those of a table; the digits."""

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digits import DIGITS
from midam.data.left_out import WHEN_MADE, left_out_words
from midam.data.sources.file_names import NameIndex
from midam.data.sources.label_table import read_labels
from midam.data.sources.labels import as_asked, labels_or_none
from midam.data.sources.reader import BagReader
from midam.data.sources.request import COLUMNS, COVARIATES, LABELS, SPLITS, Request
from midam.data.sources.table_columns import noted, require_columns
from midam.data.sources.table_files import header_of
from midam.data.store import is_store, open_store
from midam.data.store.format import DESCRIPTION, INSTANCES, TABLE
from midam.data.target_labels import TargetLabels
from midam.errors import Note, plural


class StoreReader(BagReader):
    """Reader of a store with its own labels."""

    what = "a store without `labels`"
    parameters: ClassVar[tuple[str, ...]] = (*COVARIATES, *SPLITS, "target")
    with_labels: ClassVar[tuple[str, ...]] = (*COLUMNS, *LABELS)

    def takes(self, request: Request) -> bool:
        """Return whether the folder is a store, or one that lacks its description, which `read` refuses."""
        path = request.path
        return path.is_dir() and (is_store(path) or all((path / name).exists() for name in (INSTANCES, TABLE)))

    def read(self, request: Request) -> Bags:
        """Open the store."""
        return _as_asked(_stored_covariates(_open(request), request), request)


class RelabeledStoreReader(StoreReader):
    """Reader of a store with the labels of a table, and the groups and splits of the table, if it has any.

    The classes of the store, such as those from `positive` at its import, apply to the table too. Covariates are those
    of the table or, if it lacks some of them, all those of the store.
    """

    what = "a store"
    parameters = (*COLUMNS, *COVARIATES, *LABELS, *SPLITS)

    def takes(self, request: Request) -> bool:
        """Return whether the folder is a store, and a label table is named."""
        return request.labels is not None and super().takes(request)

    def read(self, request: Request) -> Bags:
        """Open the store, and read the table."""
        bags = _open(request)
        columns = header_of(Path(str(request.labels)), sheet=request.sheet)
        of_table = set(request.covariate_columns) <= set(columns)
        if bags.covariates is not None and not (request.covariate_columns and of_table):
            bags, request = _stored_covariates(bags, request), request.changed(covariates=(), site_column=None)
        groups = None if bags.groups is None else bags.groups.tolist()
        # The class names of the store apply to a table with the same labels.
        files = NameIndex(bags.ids.tolist(), source=str(request.source))
        labeled = read_labels(request, files, groups=groups, usual=bags.classes)
        stored = None if request.header_groups(columns) else bags.subset(labeled.index).groups
        whole = _whole_groups(stored, labeled.table["groups"], request)
        return labeled.of(bags).replace(groups=whole)


def _whole_groups(
    stored: NDArray[np.str_] | None, of_table: NDArray[np.str_] | None, request: Request
) -> NDArray[np.str_] | None:
    """Return the groups of a table; if they would split groups of the store [N], join both, so each stays whole."""
    if stored is None or of_table is None:
        return stored if of_table is None else of_table
    names, group = np.unique(stored, return_inverse=True)
    others, other = np.unique(of_table, return_inverse=True)
    counts = np.bincount(np.unique(np.stack([group, other]), axis=1)[0])
    if counts.max() == 1:
        return of_table
    where = f"split {plural(int((counts > 1).sum()), 'group')} of the store, such as {names[counts > 1][0]}"
    if request.groups is not None:
        advice = "bags of one may be in two splits"
        warnings.warn(f"the groups of the table {where} (in {request.labels}): {advice}", stacklevel=4)
        return of_table
    advice = "they are merged, so that each stays whole; to use only the table's, name their column as `groups`"
    warnings.warn(f"the groups of the table would {where} (in {request.labels}): {advice}", stacklevel=4)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(names) + len(others)
    graph = coo_array((np.ones(len(group)), (group, other + len(names))), shape=(size, size))
    part = connected_components(graph, directed=False)[1][: len(names)]
    return names[np.unique(part, return_index=True)[1]][part[group]]


def _open(request: Request) -> Bags:
    """Open a store, and warn about bags and files that its import left out."""
    bags = open_store(request.path, reads=request.reads)
    if bags.left_out:
        text = f"{left_out_words(bags.left_out)} {WHEN_MADE}: {DESCRIPTION} lists them (in {request.path})"
        warnings.warn(text, stacklevel=4)
    return bags


class DigitsReader(BagReader):
    """Reader of a set of digits, by name."""

    what = "a set of digits, which is no table"
    parameters = (*SPLITS, "target")

    def takes(self, request: Request) -> bool:
        """Return whether the source is the name of such a set."""
        return str(request.source) in DIGITS

    def read(self, request: Request) -> Bags:
        """Make the set."""
        return _as_asked(DIGITS[str(request.source)](), request)


def _as_asked(bags: Bags, request: Request) -> Bags:
    """Return bags that have their own labels, with the classes or labels of the request in its order.

    Bags of another target than the request names, or of other classes, are refused, or lose their labels.
    """
    outcome = bags.outcome
    if bags.labels is not None:
        names: Any = bags.classes or ("0", "1")
        outcome = TargetLabels("binary", bags.labels[:, None].astype(np.float64), names)
    if outcome is None:
        return bags
    return bags.replace(labels=None, outcome=labels_or_none(request, lambda: as_asked(outcome, request)))


def _stored_covariates(bags: Bags, request: Request) -> Bags:
    """Return bags of a store with the covariates that a request names, and no others."""
    here = () if bags.covariates is None else bags.covariates.names
    require_columns(here, request.named_covariates, bags.source)
    if bags.covariates is None:
        return bags
    if not request.covariate_columns:
        if request.require_labels:
            message = f"the covariates {', '.join(here)} are not used: name them with `covariates` (in {bags.source})"
            warnings.warn(message, Note, stacklevel=4)
        return bags.replace(covariates=None)
    columns = bags.covariates.select(request.covariate_columns, source=bags.source).values()
    covariates = Covariates.of(columns, categories=request.category_columns, source=bags.source)
    return bags.replace(covariates=noted(covariates, request, bags.source))
