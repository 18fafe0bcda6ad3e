"""Reading of bags: from a store, a file, a manifest or a folder of files; sets of digits by name.

A `BagReader` reads a kind of input, a `midam.data.sources.file_names.FileReader` a format of one bag's file. Both are
rows of `midam.registry.READERS`, which is searched from last to first: an added reader comes before the built-in ones.
"""

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from midam.data.bags import Bags, warn_of_doubts
from midam.data.digits import DIGITS
from midam.data.left_out import LeftOut
from midam.data.sources.file_names import Reader, known_suffixes
from midam.data.sources.patients import patients_together, warn_of_names
from midam.data.sources.request import Request, file_suffix, refuse_unused
from midam.data.sources.split_table import read_splits
from midam.errors import ConfigError, DataNotFoundError, given, listed, nearest
from midam.names import nearby
from midam.registry import READERS
from midam.settings.group import plain_type

__all__ = ["BagReader", "bag_reader", "bag_readers", "read_bags"]

T = TypeVar("T")

# Options that a run does not carry over to other data.
_GIVEN_HERE = ("labels", "slides", "positive", "split_file", "fold")
_INSIDE = ("named", "time_features", "indicators")  # no parameters of `read_bags`
_ANYWHERE = (
    *("path_or_name", "images", "reads", "require_labels", "reader"),
    *("classes", "features", "kinds", "bad_labels", *_INSIDE),
)


class BagReader(Reader):
    """Base of the readers of a kind of input: it declares its input and parameters of `Request`, and reads bags.

    `with_labels` are parameters that apply if a table gives the labels.

    Examples
    --------
    A custom reader of a text file: semicolons separate the bags, and each is a label and its numbers.

    >>> class Numbers(BagReader):
    ...     what, suffixes = "text of numbers", (".numbers",)
    ...
    ...     def read(self, request):
    ...         rows = [list(map(float, line.split())) for line in request.path.read_text().split(";")]
    ...         return Bags.from_list([[[x] for x in row[1:]] for row in rows], [int(row[0]) for row in rows])
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "bags.numbers"
    >>> _ = path.write_text("1 0.5 0.7; 0 0.1")
    >>> bags = Numbers().read(Request(path))
    >>> bags.sizes.tolist(), bags.labels.tolist()
    ([2, 1], [1, 0])
    """

    with_labels: ClassVar[tuple[str, ...]] = ()

    def takes(self, request: Request) -> bool:
        """Return whether the source is of this kind; by default, whether its suffix fits."""
        return file_suffix(request.path) in self.suffixes and not request.path.is_dir()

    @abstractmethod
    def read(self, request: Request) -> Bags:
        """Read the bags; a `BagDataError` names file, column and bag at fault."""


def bag_reader(request: Request) -> BagReader | None:
    """Return the named reader, else the first that takes the source; None if there is none."""
    named = None if request.reader is None else READERS.find(request.reader)
    if named is not None and issubclass(named, BagReader):
        return named()
    return next((reader for reader in bag_readers() if reader.takes(request)), None)


def bag_readers() -> Iterator[BagReader]:
    """Yield the readers of inputs, in the order in which they are asked; each is imported then."""
    for reader in map(READERS.find, reversed(READERS.names())):
        if issubclass(reader, BagReader):
            yield reader()


def takes_request(read: T) -> T:
    """Give `read_bags` the parameters of a request, for `help` and the documentation; return the same function.

    Without a wrapper there is no frame in between, so that warnings point to the line of the caller.
    """
    signature = inspect.signature(Request)
    parts = [part for name, part in signature.parameters.items() if name not in _INSIDE]
    parts = [part.replace(annotation=plain_type(part.annotation)) for part in parts]
    vars(read)["__signature__"] = signature.replace(parameters=parts, return_annotation=Bags)
    return read


@takes_request
def read_bags(path_or_name: str | Path, **options: Any) -> Bags:
    """Read bags from a store, a file, a manifest or a folder of files, or a set of digits by name.

    Parameters
    ----------
    path_or_name : str or Path
        A set of digits (`midam.data.digits`), such as "digits"; a store (`midam.data.store`); a folder with a file of
        features, an image, slide or volume for each bag (`midam.data.sources.folder`); a manifest, that is a table with
        a column ``path`` (`midam.data.sources.inputs`); or an npz, CSV, TSV, Excel or Parquet file of instances.
        CSV may be separated by commas, semicolons or tabs, and packed (``.csv.gz``).
    bag_column, label_column : str
        Columns of the bag and of its label. A label table's column of files is found if none is given.
    groups, split : str, optional
        Columns of the group (patient) and of the split: train, val (valid, validation) or test. Default: the column
        ``group``, patient or case, and the column ``split``, of a label table or manifest. Several columns with commas
        name the group together: ``"site,patient"``.
    instance_label : str, optional
        Column of a table of instances with labels of instances: 1, 0, or empty if unknown. They evaluate scores of
        instances, see `midam.evaluate.labeled_instances`, and are never used in training.
    coords, ignore : sequence of str
        Columns of a table of instances that hold coordinates, and columns to leave out.
    categories : sequence of str
        Columns of a table of instances, and covariates, that are categories; text with few values is recognized.
        Training encodes them: `midam.data.column_codes`.
    covariates : sequence of str
        Columns of a table (of instances, a manifest or a label table), keys of an npz file, or covariates of a store
        that hold covariates of the bags, such as age and sex: `midam.data.covariates`.
    site_column : str, optional
        Column, key or covariate with the hospital or scanner that a bag comes from: the `sites` of the bags, each of
        which can be a fold. It is a covariate only if `covariates` names it too.
    labels, slides : str or Path, optional
        Label table (CSV, TSV or Excel) of a folder, or other labels for a store; and the table of patients and their
        files, where the label table names patients (STAMP).
    positive : str, optional
        Value of the label column (of ``y`` in an npz, of the folders if these are the classes) that is label 1; all
        others are 0. Default: the labels are 0 and 1, or two words of which one is clearly positive, such as no and yes
        (`midam.data.sources.labels`).
    target : str, default "auto"
        Kind of the labels: "binary", "multiclass", "multilabel", "ordinal", "continuous" or "survival"; by default
        inferred if it is clear (`midam.data.sources.labels`), with a note.
    grades : sequence of str
        Grades of an ordinal target, the lowest first; they imply the target. Default: the numbers in their order.
    bag_by : {"slide", "patient"}
        In a folder: a bag for each file, or for each patient.
    split_file, fold : str or Path, int, optional
        Table of splits (`midam.data.sources.split_table.read_splits`), and the number of one of its folds; bags that it
        does not name are left out, with a warning.
    missing : {"error", "skip"}
        What to do about rows of the tables whose file is missing, and about files that cannot be used; `Bags.left_out`
        lists the skipped ones. A file without instances is always left out.
    sheet : str, optional
        Sheet of an Excel table; default: the first.
    impute : bool, optional
        Keep missing values of a table or npz file as NaN, for `midam.data.missing`; by default they are refused. None
        keeps them too, and is taken with all data.
    classes : sequence of str, optional
        Names of the labels 0 and 1, or the classes, grades or labels of another target, if known, as from a run.
    features : sequence of str, optional
        Columns of a table of instances that are its features, in this order; others are left out, with a note.
    kinds : mapping of str to str, optional
        Kinds of these columns ("number", "category" or "time"), if known, as from a run.
    bad_labels : {"error", "ignore"}
        What to do about doubtful or missing labels: "ignore" reads the bags without labels, with a note.
    images : ImageOptions
        How images, slides and volumes are cut into instances.
    reads : {"auto", "mmap", "pread"}
        How a store is read; see `midam.data.on_disk.RowFile`.
    require_labels : bool, default True
        Refuse data without labels. False, as for prediction, also ignores column names that do not apply.
    reader : str, optional
        Name of the reader of the input, or of the files in a folder; default: the one that takes it.

    Returns
    -------
    Bags
        Instances of a store or of feature files stay on disk; their values are checked when they are read.

    Raises
    ------
    DataNotFoundError, BagDataError, ConfigError
        If there is neither such a file nor such a name; if the data cannot be used (the message names file, column and
        bag); if a parameter does not apply to the data.

    Examples
    --------
    >>> len(read_bags("digits"))
    360
    """
    request = Request(path_or_name, **options)
    reader = bag_reader(request)
    if reader is None:
        raise _unknown(request)
    if request.impute is None:
        request = request.changed(impute="impute" in reader.parameters)
    _check_applies(reader, request)
    bags = reader.read(request.completed())
    bags = patients_together(bags, request)
    warn_of_doubts(bags)
    bags = split_bags(bags, request)
    warn_of_names(bags, request)
    # A store knows what its import left out.
    return bags.replace(left_out=[*bags.left_out, *request.left_out]) if request.left_out else bags


def _unknown(request: Request) -> DataNotFoundError:
    suffixes = list(dict.fromkeys(suffix for reader in bag_readers() for suffix in reader.suffixes))
    source = request.path_or_name
    if request.path.is_file() and file_suffix(request.path) in known_suffixes():
        return DataNotFoundError(f"Expected a folder of such files, got one (in {source}); name its folder.")
    if request.path.is_file():
        advice = "save the file in one of these formats, or read it with pandas and call Bags.from_dataframe."
    else:
        advice = nearby(request.path, otherwise=nearest(source, DIGITS, count=3))
    return DataNotFoundError(
        f"Expected a store, a folder of features, a file ({', '.join(suffixes)}) or a set of digits, "
        f"got {source!r}; {advice}"
    )


def _check_applies(reader: BagReader, request: Request) -> None:
    """Refuse parameters that do not apply to the data, or that need another parameter."""
    strict, source = request.require_labels, request.path_or_name
    for name, parameter in Request.model_fields.items():
        value = getattr(request, name)
        applies = name in (*reader.parameters, *_ANYWHERE) or value == parameter.default
        if not applies and (strict or name in _GIVEN_HERE):
            more = ", or give a table with it as `labels`" if name in reader.with_labels else ""
            wanted = f"no `{name}` with {reader.what}"
            raise ConfigError(f"Expected {wanted}, got {str(value)!r} for {source}; leave it out{more}.")
    others = [] if "ignore" in reader.parameters else [*{*request.categories} - {*request.covariate_columns}]
    if strict and others:
        got = f"{others[0]!r} for {source}; name it with both, or leave it out"
        raise ConfigError(f"Expected `categories` among the `covariates` with {reader.what}, got {got}.")
    if strict and "images" not in reader.parameters:
        refuse_unused(request.images, (), kind=reader.what, where=source)
    if request.fold is not None and request.split_file is None:
        raise ConfigError(f"Expected `split_file` with `fold`, got {given(fold=request.fold)} alone; name the table.")
    if request.slides is not None and request.labels is None:
        raise ConfigError("Expected `labels` with `slides`, got none; name the table of patients.")
    if request.split_file is not None and request.split is not None:
        raise ConfigError("Expected `split` or `split_file`, got both; leave one out.")


def split_bags(bags: Bags, request: Request) -> Bags:
    """Return bags with the splits of a request's split table, if any, and without bags that it does not name."""
    split_file = request.split_file
    if split_file is None:
        return bags
    splits = read_splits(bags, request)
    kept, lost = np.flatnonzero(splits != ""), bags.ids[splits == ""].tolist()
    if lost:
        text = f"{len(lost)} of {len(bags)} bags have no split and are left out: {listed(lost)} (in {split_file})"
        warnings.warn(text, stacklevel=3)
        request.left_out.extend(LeftOut(bag, "", f"no split in {split_file}") for bag in lost)
    return bags.subset(kept).replace(splits=splits[kept])
