"""Names of other libraries for options of midam: suggestions look here before they compare letters."""

import re
from collections.abc import Iterable
from functools import lru_cache

MEANINGS = {
    "aggregation": ("pooling",),
    "backbone": ("encoder",),
    "bag_size": ("num_instances",),
    "batch_size": ("num_positive", "num_negative"),
    "checkpoint": ("resume",),
    "device": ("accelerator",),
    "early_stopping": ("patience",),
    "gpus": ("accelerator", "devices"),
    "label": ("label_column", "labels"),
    "learning_rate": ("lr", "lrs"),
    "loss": ("objective",),
    "max_iter": ("epochs",),
    "model": ("encoder", "method", "methods"),
    "n_estimators": ("members",),
    "n_jobs": ("workers", "jobs", "threads"),
    "output_dir": ("out",),
    "patient_id": ("groups",),
    "random_state": ("seed",),
    "test_size": ("test_fraction",),
    "val_size": ("val_fraction",),
}
_ID = re.compile(
    r"uu?id|(study|series|instance)uid|mrn|ssn|\w*(barcode|identifier)|(\w*record|accession|serial|specimen)(no|nr|number)?"
)


@lru_cache(maxsize=4096)
def plain_key(name: str) -> str:
    """Return a name without case, hyphens and other signs.

    Examples
    --------
    >>> plain_key("--Learning-Rate") == plain_key("learning_rate") == plain_key("learningRate")
    True
    """
    return re.sub(r"[\W_]", "", name.casefold())


_BY_KEY = {plain_key(word): names for word, names in MEANINGS.items()}


def same_meaning(name: object, known: Iterable[str]) -> list[str]:
    """Return the `known` names that equal a name up to signs, or that mean the same.

    Examples
    --------
    >>> same_meaning("learning-rate", ["epochs", "lr", "pair_rate"])
    ['lr']
    """
    key, names = plain_key(str(name)), list(known)
    alike = [one for one in names if key and plain_key(one) == key]
    return alike or [one for ours in _BY_KEY.get(key, ()) for one in names if plain_key(one) == plain_key(ours)]


def is_known_word(name: object) -> bool:
    """Return whether a name has a known meaning elsewhere, so that shared letters with another name are no hint."""
    return plain_key(str(name)) in _BY_KEY


def is_id_like(name: str) -> bool:
    """Return whether a column name is that of an id: id, transaction_id, TransactionID, uuid, MRN, accession_number."""
    called = re.search(r"(^|[^A-Za-z]|[a-z](?=I))(id|ID|Id)$", name) is not None
    return called or _ID.fullmatch(plain_key(name)) is not None
