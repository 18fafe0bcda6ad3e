"""The sites of training bags, by which batches are balanced, and what cannot be balanced."""

import warnings

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import shown
from midam.errors import BagDataError, ConfigError
from midam.targets import Target


def sites_to_balance(train: Bags, target: Target, balance: str | None) -> NDArray[np.str_] | None:
    """Sites [N] of training bags where the setting `balance` names their column; None where it names none.

    Raises
    ------
    ConfigError
        If the bags have no sites.
    BagDataError
        If a bag has none, or each bag one of its own.

    Warns
    -----
    UserWarning
        If a class has no bags from some site, or all bags come from one: there, class and site stay confounded.
    """
    if balance is None:
        return None
    sites = train.sites
    if sites is None:
        raise ConfigError(
            f"Expected bags with sites for `balance={balance!r}`, got none (in {train.source}); read them with "
            f"`midam.read_bags(..., site_column={balance!r})`, or give `Bags` with `sites`."
        )
    unknown = train.ids[sites == ""].tolist()
    if unknown:
        raise BagDataError(
            f"Expected a site of each training bag in the column {balance!r} of `balance`, got none for "
            f"{shown(unknown)} (in {train.source}); fill it in, or write a word such as unknown, which is then a site "
            "of its own."
        )
    names = np.unique(sites)
    if len(names) == len(sites) > 1:
        raise BagDataError(
            f"Expected sites of several bags in the column {balance!r} of `balance`, got another one for each bag (in "
            f"{train.source}); name the column of the hospital or scanner."
        )
    told = _cannot_balance(train, target, names)
    if told:
        warnings.warn(f"balance by {balance}: {told} (in {train.source})", UserWarning, stacklevel=2)
    return sites


def _cannot_balance(train: Bags, target: Target, names: NDArray[np.str_]) -> str:
    """Which classes are missing at which sites, in words; empty where none is."""
    if len(names) == 1:
        return f"all training bags come from {names[0]}, nothing is balanced"
    strata = target.turns(target.values(train))
    lost = []
    for stratum in np.unique(strata):
        missing = names[~np.isin(names, train.sites[strata == stratum])].tolist()  # type: ignore[index]  # has sites
        if missing:
            lost.append(f"{_name(target.stratum_names, int(stratum))} at {shown(missing)}")
    return f"no training bags of {'; '.join(lost)}: class and site cannot be balanced there" if lost else ""


def _name(names: tuple[object, ...], stratum: int) -> str:
    """What a stratum of the sampler is called."""
    return str(names[stratum]) if stratum < len(names) else f"stratum {stratum}"
