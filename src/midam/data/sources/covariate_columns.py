"""Covariates of the columns of a table, of the keys of an archive, or of a store; the site of a bag is read as one."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.covariates import Covariates, missing_of, shown
from midam.data.sources.request import Request
from midam.data.sources.table_columns import is_group_like, is_row_like, require_columns, words_for_none
from midam.data.validate import site_array
from midam.errors import Note
from midam.synonyms import is_id_like

if TYPE_CHECKING:
    import pandas as pd

_SEVERAL = 5


def read_covariates(columns: Mapping[str, ArrayLike], request: Request, *, where: str) -> Covariates | None:
    """The covariates that a request names, and the site, of columns that have them; None where it names none.

    A column that is missing is refused. Before a training, a note describes each of them.
    """
    if not request.covariate_columns:
        return None
    require_columns(columns, request.named_covariates, where)
    covariates = Covariates.of({name: columns[name] for name in request.covariate_columns}, source=where)
    for name, column in zip(covariates.names, covariates.columns):
        lost = words_for_none(np.asarray(columns[name]).ravel().tolist())
        words = request.read_as_missing.get(name) or ", ".join(map(repr, lost))
        if words and column.dtype.kind != "f" and request.require_labels:
            text = f"{words} of column {name} stands for a missing value (in {where})"
            warnings.warn(f"{text}; if it is a category, write another word", Note, stacklevel=4)
    return noted(covariates, request, where)


def frame_covariates(frame: "pd.DataFrame", request: Request, *, where: str) -> Covariates | None:
    """As `read_covariates`, of the rows of a data frame."""
    present = [name for name in request.covariate_columns if name in frame.columns]
    return read_covariates({name: frame[name].to_numpy() for name in present}, request, where=where)


def noted(covariates: Covariates, request: Request, where: str) -> Covariates:
    """The same covariates, with a note of what each is before a training; the site alone is none."""
    if request.require_labels and request.covariates:
        own = covariates.select(request.covariates, source=where)
        warnings.warn(f"covariates: {own.summary()} (in {where})", Note, stacklevel=5)
        for name, column in zip(own.names, own.columns):
            if count := _ids(name, column):
                kind = "whole numbers" if column.dtype.kind == "f" else "words"
                text = (
                    f"the covariate {name} is called an id, and has {count} {kind} in {len(column)} bags: leave it out"
                )
                warnings.warn(f"{text} (in {where})", stacklevel=5)
    return covariates


def split_sites(
    covariates: Covariates | None, request: Request, where: str
) -> tuple[NDArray[np.str_] | None, Covariates | None]:
    """Return the sites that a request names, which were read as a covariate, and the covariates that it names."""
    if request.site_column is None or covariates is None:
        return None, covariates
    (column,) = covariates.select([request.site_column], source=where).columns
    sites = site_array(column, where)
    if request.require_labels:
        names = np.unique(sites[sites != ""]).tolist()
        message = f"sites: {len(names)} in the column {request.site_column} ({shown(names)}) (in {where})"
        warnings.warn(message, Note, stacklevel=4)
    return sites, covariates.select(request.covariates, source=where) if request.covariates else None


def _ids(name: str, column: NDArray[Any]) -> int:
    """Number of ids in a covariate [N] that is called so, and holds many; 0 of others, such as words for sites."""
    known = column[~missing_of(column)]
    count = len(np.unique(known))
    if column.dtype.kind == "f":
        called = is_id_like(name) or is_group_like(name) or (is_row_like(name) and count == len(known))
        called = called and bool((known == np.round(known)).all())
    else:
        called = is_group_like(name) and "group" not in name.lower()
    return count if called and count > _SEVERAL else 0
