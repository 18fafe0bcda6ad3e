"""The request for data: the parameters of `midam.data.read_bags`, as readers get them.

`ImageOptions` are the settings that cut images, slides and volumes into instances.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName
from midam.data.validate import ClassName
from midam.errors import BagDataError, ConfigError, path_of, with_article
from midam.names import name_of, on_disk
from midam.settings.data import CutSettings

Places = NDArray[np.int64]  # [n, 2] x and y of patches, or [n, 1] numbers of slices

ImageOptions = CutSettings
DEFAULTS = ImageOptions()
BagBy = Literal["slide", "patient"]
MissingName = Literal["error", "skip"]
BadLabels = Literal["error", "ignore"]
_PACKED = (".nii.gz", ".csv.gz", ".tsv.gz")
OnFile = Callable[[int, int], None]
# Parameters of `Request` that are names, or lists of names.
_NAMES = (
    *("bag_column", "label_column", "groups", "split", "coords", "ignore", "categories"),
    *("covariates", "site_column", "positive", "grades", "sheet", "classes", "features"),
)
# Parameters of `Request` that say how tables are read, and those that apply to any data.
COLUMNS = ("bag_column", "label_column", "groups", "split")
COVARIATES = ("covariates", "site_column", "categories")
LABELS = ("labels", "slides", "positive", "target", "grades", "sheet")
SPLITS = ("split_file", "fold", "missing")
# Attributes of DICOM headers that may be the groups.
HEADER = ("PatientID", "InstitutionName", "StationName", "DeviceSerialNumber", "ManufacturerModelName")


class SizesError(BagDataError):
    """Slices have several sizes."""


class RunOptions(CutSettings):
    """The settings with which a run was trained, and the size of its slices.

    Attributes
    ----------
    matrix
        Rows and columns of slices, or slices, rows and columns of volumes. Slices of another size are resized in
        proportion and padded, volumes of another size are resized; with `spacing`, both are only cropped or padded.
    """

    matrix: tuple[int, ...]


def refuse_unused(options: ImageOptions, allowed: Collection[str], *, kind: str, where: str) -> None:
    """Refuse settings that do not apply to data of this kind, with a `ConfigError` that names the first one."""
    for name, setting in CutSettings.model_fields.items():
        value = getattr(options, name)
        if name not in allowed and value != setting.default:
            raise ConfigError(f"Expected no `{name}` with {kind}, got {value!r} for {where}; leave it out.")


def _word(name: Any) -> Any:
    return name_of(name) if isinstance(name, str) else name


@dataclass(frozen=True)
class Request:
    """Parameters of `midam.data.read_bags`, as they are passed to readers.

    Examples
    --------
    >>> request = Request("cohort.csv", label_column="diagnosis", groups="patient")
    >>> request.path.suffix, request.label_column, request.missing
    ('.csv', 'diagnosis', 'error')
    """

    path_or_name: str | Path
    _: KW_ONLY
    bag_column: str = "bag"
    label_column: str = "label"
    groups: str | None = None
    split: str | None = None
    coords: Sequence[str] = ()
    ignore: Sequence[str] = ()
    categories: Sequence[str] = ()
    covariates: Sequence[str] = ()
    site_column: str | None = None
    labels: str | Path | None = None
    slides: str | Path | None = None
    positive: str | None = None
    target: str = "auto"
    grades: Sequence[str] = ()
    bag_by: BagBy = "slide"
    split_file: str | Path | None = None
    fold: int | None = None
    missing: MissingName = "error"
    sheet: str | None = None
    impute: bool | None = False
    classes: tuple[ClassName, ...] | None = None
    features: Sequence[str] | None = None
    kinds: Mapping[str, str] | None = None
    bad_labels: BadLabels = "error"
    images: ImageOptions = DEFAULTS
    reads: ReadsName = "auto"
    require_labels: bool = True
    reader: str | None = None
    on_file: OnFile | None = None
    left_out: list[LeftOut] = field(default_factory=list, init=False)  # grows while bags are read
    read_as_missing: dict[str, str] = field(default_factory=dict, init=False)  # words of label columns, grows too
    where: str = field(default="", init=False)  # name in messages of the label table or, without one, of the data

    def __post_init__(self) -> None:
        if not isinstance(self.path_or_name, str | Path):
            raise BagDataError(
                f"Expected a path or a name, got {with_article(type(self.path_or_name).__name__)}; make bags of a "
                "DataFrame with `Bags.from_dataframe`, of arrays with `Bags.from_list` or `Bags.from_arrays`."
            )
        for name in _NAMES:
            value = getattr(self, name)
            several = isinstance(value, Iterable) and not isinstance(value, str)
            object.__setattr__(self, name, tuple(map(_word, value)) if several else _word(value))
        for name in ("path_or_name", "labels", "slides", "split_file"):
            value = getattr(self, name)
            if value is not None and (path := on_disk(path_of(value, "the data"))) != Path(value):
                object.__setattr__(self, name, type(value)(path))
        object.__setattr__(self, "where", str(self.source if self.labels is None else self.labels))

    @property
    def source(self) -> str | Path:
        """Path or name of the data."""
        return self.path_or_name

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.source)

    def changed(self, **changes: Any) -> Self:
        """Return the request with other values of some parameters; they share the fields that grow during reading."""
        same = {"path_or_name", "labels"}.isdisjoint(changes)
        shared = ("left_out", "read_as_missing", *(("where",) if same else ()))
        known = {name: changes.pop(name, getattr(self, name)) for name in shared}
        request = replace(self, **changes)
        for name, value in known.items():
            object.__setattr__(request, name, value)
        return request

    def completed(self) -> Self:
        """Return the request with the target that `grades` imply, which is ordinal; refuse another target."""
        if not self.grades or self.target == "ordinal":
            return self
        if self.target != "auto":
            raise ConfigError(f"Expected `grades` with `target='ordinal'`, got {self.target!r}; leave one of them out.")
        return self.changed(target="ordinal")

    def header_groups(self, columns: Iterable[object] = ()) -> tuple[str, ...]:
        """Return the attributes of DICOM headers that are the groups, unless they are `columns` of a table."""
        parts = tuple((self.groups or "").split(","))
        return parts if {*parts} <= {*HEADER} and not {*parts} <= {*map(str, columns)} else ()

    @property
    def covariate_columns(self) -> tuple[str, ...]:
        """Columns of the covariates, and that of the site."""
        return tuple(dict.fromkeys(name for _, name in self.named_covariates))

    @property
    def named_covariates(self) -> list[tuple[str, str]]:
        """The same columns, each with the parameter that names it."""
        site = [] if self.site_column is None else [("site_column", self.site_column)]
        return [*(("covariates", name) for name in self.covariates), *site]

    @property
    def category_columns(self) -> set[str]:
        """Columns whose values are names, even if all look like numbers: categories, and the site."""
        known = [name for name, kind in (self.kinds or {}).items() if kind == "category"]
        return {*self.categories, *known, *filter(None, [self.site_column])}


def file_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case; both parts for packed files: ``.nii.gz``, ``.csv.gz``, ``.tsv.gz``."""
    name = path.name.lower()
    return next((packed for packed in _PACKED if name.endswith(packed)), path.suffix.lower())
