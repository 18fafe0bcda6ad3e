"""The request for data: the parameters of `midam.data.read_bags`, as readers get them.

`ImageOptions` are the settings that cut images, slides and volumes into instances.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr, field_validator

from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName
from midam.data.validate import ClassName
from midam.errors import BagDataError, ConfigError, path_of, with_article
from midam.names import name_of, on_disk
from midam.settings.data import CutSettings, DataSettings

Places = NDArray[np.int64]  # [n, 2] x and y of patches, or [n, 1] numbers of slices

ImageOptions = CutSettings
DEFAULTS = ImageOptions()
BagBy = Literal["slide", "patient"]
MissingName = Literal["error", "skip"]
BadLabels = Literal["error", "ignore"]
_PACKED = (".nii.gz", ".csv.gz", ".tsv.gz")
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


class Request(DataSettings):
    """Parameters of `midam.data.read_bags`, as they are passed to readers: how data is read, and what is known of it.

    Examples
    --------
    >>> request = Request("cohort.csv", label_column="diagnosis", groups="patient")
    >>> request.path.suffix, request.label_column, request.missing
    ('.csv', 'diagnosis', 'error')
    """

    path_or_name: str
    site_column: str | None = None
    impute: bool | None = False  # type: ignore[assignment]  # whether missing values are kept; how is said later
    classes: tuple[ClassName, ...] | None = None
    features: tuple[str, ...] | None = None
    kinds: Mapping[str, str] | None = None
    bad_labels: BadLabels = "error"
    images: ImageOptions = DEFAULTS
    reads: ReadsName = "auto"
    require_labels: bool = True
    named: str = ""  # in messages, instead of the label table or the data
    _left_out: list[LeftOut] = PrivateAttr(default_factory=list)
    _read_as_missing: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, path_or_name: str | Path, **options: Any) -> None:
        if not isinstance(path_or_name, str | Path):
            raise BagDataError(
                f"Expected a path or a name, got {with_article(type(path_or_name).__name__)}; make bags of a "
                "DataFrame with `Bags.from_dataframe`, of arrays with `Bags.from_list` or `Bags.from_arrays`."
            )
        options["path_or_name"] = path_or_name
        for name in ("path_or_name", "labels", "slides", "split_file"):
            if options.get(name) is not None:
                options[name] = str(on_disk(path_of(options[name], "the data")))
        arrays = {name: value.tolist() for name, value in options.items() if hasattr(value, "tolist")}
        super().__init__(**options | arrays)

    @field_validator("classes", "features", "site_column")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(name_of(name) if isinstance(name, str) else name for name in value)
        return value and name_of(value)

    @property
    def left_out(self) -> list[LeftOut]:
        """What reading leaves out; grows while bags are read."""
        return self._left_out

    @property
    def read_as_missing(self) -> dict[str, str]:
        """Words of label columns that are read as missing; grows while bags are read."""
        return self._read_as_missing

    @property
    def where(self) -> str:
        """Name in messages of the label table or, without one, of the data."""
        return self.named or (self.path_or_name if self.labels is None else self.labels)

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.path_or_name)

    def changed(self, **changes: Any) -> Self:
        """Return the request with other values of some parameters; they share the fields that grow during reading."""
        return self.model_copy(update=changes)

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
    return next((packed for packed in _PACKED if path.name.lower().endswith(packed)), path.suffix.lower())
