"""How data is read: columns, tables of labels and of splits."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from midam.names import name_of
from midam.registry import READERS, TARGETS
from midam.settings.group import Named, SettingsGroup
from midam.settings.model import AUTO

_NAMES = (
    *("bag_column", "label_column", "grades", "groups", "split", "coords", "ignore", "covariates", "positive", "sheet"),
)


class DataSettings(SettingsGroup):
    """How data is read.

    Attributes
    ----------
    bag_column
        Column of a table that names the bag; of a label table, the file: by default the column that does.
    label_column
        Column of the label in a table, or attribute of HDF5 and Zarr files; of several labels, or of time and event,
        with commas.
    target
        What the labels are: "multilabel" has several columns of 0 and 1, "survival" a time and an event; "auto" finds
        it where it is plain.
    grades
        The grades of an ordinal target, the lowest first; default: numbers, in their order.
    groups
        Column of the group (patient), or columns site,patient, by which splits are disjoint; default: the column group,
        patient or case of a label table.
    split
        Column of a table that names the split: train, val or test; default: the column split of a label table.
    coords
        Columns of a table that hold coordinates.
    ignore
        Columns of a table that are not features.
    covariates
        Columns that say something of the bags beside their instances, numbers or categories, such as age,sex; of the
        table, the label table, the keys of an npz file or the covariates of a store.
    labels
        Label table (CSV, TSV or Excel) of a folder of feature files, or other labels for a store.
    slides
        Table of patients and their files, where the label table is one of patients.
    positive
        Value of the label column that is label 1, all others are 0; of survival, the event. Of folders that are
        classes: the name of one.
    sheet
        Sheet of an Excel table; default: the first.
    impute
        Fill missing values of a table or npz file: with the "mean" or "median" of the feature in the training bags, or
        "zero"; "none" refuses them.
    bag_by
        Of a folder of feature files: a bag for each file ("slide"), or one for all files of a patient.
    split_file
        Table of splits: CLAM's splits_K.csv or their folder, Patho-Bench's (columns fold_K), or names and column split.
    fold
        Number of the split, where `split_file` holds several.
    missing
        What to do about rows of the tables whose file is missing, and files that cannot be used: "error", or "skip"
        them with a warning and a list, left-out.csv. Files without instances are always left out.
    reader
        Reader of the data, by name or class path; default: the one that takes it.
    """

    bag_column: str = "bag"
    label_column: str = "label"
    target: Annotated[str, Named(TARGETS, also=(AUTO,))] = AUTO
    grades: tuple[str, ...] = ()
    groups: str | None = None
    split: str | None = None
    coords: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    labels: str | None = None
    slides: str | None = None
    positive: str | None = None
    sheet: str | None = None
    impute: Literal["none", "mean", "median", "zero"] = "none"
    bag_by: Literal["slide", "patient"] = "slide"
    split_file: str | None = None
    fold: Annotated[int, Field(ge=0)] | None = None
    missing: Literal["error", "skip"] = "error"
    reader: Annotated[str, Named(READERS)] | None = None

    @field_validator(*_NAMES)
    @classmethod
    def _in_form(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        return tuple(map(name_of, value)) if isinstance(value, tuple) else value and name_of(value)
