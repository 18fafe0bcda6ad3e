"""How data is read (columns, tables of labels and of splits), and how images are cut into instances."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from midam.errors import ConfigError
from midam.names import name_of
from midam.registry import READERS, TARGETS
from midam.settings.group import AUTO, LARGEST_COUNT, Count, Named, Positive, SettingsGroup

PATCHES = ("patch_size", "stride", "tissue")
VOLUMES = ("axis", "spacing", "window", "drop_empty", "slice_size", "volume", "volume_size")

TimeFeature = Literal["since-first", "until-last", "hour", "weekday", "days"]

_NAMES = (
    *("bag_column", "label_column", "grades", "groups", "split", "instance_label", "coords", "ignore", "categories"),
    *("covariates", "positive", "sheet"),
)


def _ascending(window: tuple[float, float]) -> tuple[float, float]:
    if window[0] >= window[1]:
        raise ConfigError(
            f"Expected `window` as two ascending intensities, such as [0, 400], got {list(window)}; choose others."
        )
    return window


class CutSettings(SettingsGroup):
    """How images, slides and volumes are cut into instances.

    Attributes
    ----------
    patch_size
        Side of the patches of images and slides, in pixels; pixels that fill no whole patch are left out.
    stride
        Pixels from one patch to the next; default: the patch size.
    magnification
        Magnification of slides, such as 20; default: the pixels of level 0.
    tissue
        Minimum share of tissue in a patch, in [0, 1]; default: 0.5 on slides, no limit on images.
    series
        Description (or a part of it), modality or number of the DICOM series to read from a folder of several.
    axis
        Axis of the slices: 0 sagittal, 1 coronal, 2 axial for NIfTI and DICOM, the number of the axis for
        arrays; default: axial slices of NIfTI, acquired slices of DICOM, the first axis of arrays.
    spacing
        Pixel spacing in mm to which slices, or whole volumes, are resampled.
    window
        Two intensities of volumes that become 0 and 1; values outside are clipped; default: unchanged intensities.
    drop_empty
        Leave out slices whose intensities, after the window, differ by at most 1/1000 of the span of their volume.
    slice_size
        Side of the square to which slices are resized in proportion, and padded with the least intensity of their
        volume; with `spacing`, only cropped or padded.
    volume
        Use a volume as one instance, for resnet20-3d, instead of its slices.
    volume_size
        Slices, rows and columns to which such volumes are resized; with `spacing`, cropped or padded.

    Examples
    --------
    >>> CutSettings(patch_size=64).step
    64
    """

    patch_size: Count = 32
    stride: Count | None = None
    magnification: Positive | None = None
    tissue: Annotated[float, Field(ge=0, le=1)] | None = None
    series: str | None = None
    axis: Annotated[int, Field(ge=0, le=2)] | None = None
    spacing: Positive | None = None
    window: Annotated[tuple[float, float], AfterValidator(_ascending)] | None = None
    drop_empty: bool = True
    slice_size: Count | None = None
    volume: bool = False
    volume_size: tuple[Count, Count, Count] | None = None

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.volume and self.slice_size is not None:
            raise ConfigError(
                "Expected `volume_size` for whole volumes, got `slice_size`; leave out `volume` or `slice_size`."
            )
        if self.volume_size is not None and not self.volume:
            raise ConfigError("Expected `volume=True` with `volume_size`, got False; add it.")
        return self

    @property
    def step(self) -> int:
        """Pixels from one patch to the next."""
        return self.patch_size if self.stride is None else self.stride

    def cut(self, kind: str) -> dict[str, Any]:
        """Return the settings that cut into "patches", "slices" or "volume", with defaults filled in."""
        names = (*PATCHES[:2], "magnification", "tissue") if kind == "patches" else VOLUMES
        values = {name: self.step if name == "stride" else getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


class DataSettings(SettingsGroup):
    """How data is read.

    Attributes
    ----------
    bag_column
        Column that names the bag of a row, or, in a label table, the file; there the default is the column of files.
    label_column
        Column of the label in a table, or attribute of HDF5 and Zarr files; several labels, or time and event, with
        commas.
    target
        Kind of label: "multilabel" has several columns of 0 and 1, "survival" a time and an event; "auto" infers it if
        it is clear.
    grades
        Grades of an ordinal target, the lowest first; default: numbers in ascending order.
    groups
        Columns of the group, such as site,patient, by which splits are disjoint, or an attribute of DICOM headers;
        default: the column group, patient or case of labels, else the PatientID.
    split
        Column of a table that names the split: train, val or test; default: the column split of a label table.
    instance_label
        Column of a table with known labels of instances: 1 for one that makes its bag positive, 0 for another, empty if
        unknown. They evaluate which instances decided, and are never used in training.
    coords
        Columns of a table that hold coordinates.
    ignore
        Columns of a table that are not features.
    categories
        Categorical columns of a table, such as merchant,channel: a feature for each category of 3 training bags or
        more, and one for all others. Text with few values is categorical by default; name columns of numeric codes, and
        of text with many values, and covariates that are codes.
    time_features
        Features of a column of dates or times: days "since-first" and "until-last" instance of its bag, the "hour" of
        the day, the "weekday" from 0 (Monday), and "days" since 1970-01-01, which separate old bags from new; in UTC
        if times state an offset.
    covariates
        Columns about bags, not instances: numbers or categories, such as age,sex; from the table, the label table, the
        keys of an npz file or the covariates of a store.
    labels
        Label table (CSV, TSV or Excel) of a folder of feature files, or other labels for a store.
    slides
        Table of patients and their files, if the label table lists patients.
    positive
        Value of the label column that is label 1, all others are 0; for survival, the event. For class folders, the
        name of the positive folder.
    sheet
        Sheet of an Excel table; default: the first.
    impute
        Fill missing values of a table or npz file with the "mean" or "median" of the feature in training bags, or
        "zero"; "none" refuses them, except in categories.
    indicators
        With `impute`, add a feature for each number or time that some training bags lack: 1 where it is missing.
    bag_by
        In a folder of feature files: a bag for each file ("slide"), or for all files of a "patient".
    split_file
        Table of splits: CLAM's splits_K.csv or the folder of them, Patho-Bench's table (columns fold_K), or a table of
        names with a column split.
    fold
        Number of the split, if `split_file` holds several.
    missing
        For table rows whose file is missing, and files that cannot be used: "error", or "skip" them with a warning and
        a list, left-out.csv. Files without instances are always left out.
    reader
        Reader of the data; default: the one that fits it.

    Examples
    --------
    >>> from midam.settings import DataSettings, Settings
    >>> data = DataSettings(label_column="diagnosis", groups="patient", covariates=("age", "sex"))
    >>> Settings(data=data).data.groups
    'patient'
    """

    bag_column: str = "bag"
    label_column: str = "label"
    target: Annotated[str, Named(TARGETS, also=(AUTO,))] = AUTO
    grades: tuple[str, ...] = ()
    groups: str | None = None
    split: str | None = None
    instance_label: str | None = None
    coords: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    time_features: tuple[TimeFeature, ...] = ("since-first", "until-last", "hour", "weekday")
    covariates: tuple[str, ...] = ()
    labels: str | None = None
    slides: str | None = None
    positive: str | None = None
    sheet: str | None = None
    impute: Literal["none", "mean", "median", "zero"] = "none"
    indicators: bool = False
    bag_by: Literal["slide", "patient"] = "slide"
    split_file: str | None = None
    fold: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] | None = None
    missing: Literal["error", "skip"] = "error"
    reader: Annotated[str | None, Named(READERS)] = None

    @field_validator(*_NAMES)
    @classmethod
    def _in_form(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        return tuple(map(name_of, value)) if isinstance(value, tuple) else value and name_of(value)
