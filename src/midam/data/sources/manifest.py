"""A manifest: a CSV or TSV with the columns bag, path, label and perhaps group and split."""

import warnings

import numpy as np

from midam.data.bags import Bags
from midam.data.sources import table_columns as tables
from midam.data.sources.assemble import assemble
from midam.data.sources.file_names import first_names
from midam.data.sources.reader import COLUMNS, SPLITS, BagReader, Request, check_options
from midam.errors import BagDataError, DataNotFoundError, given


class ManifestReader(BagReader):
    """A row is a file, by its path from the manifest's folder; a column of patients is the group if none is named."""

    what = "a manifest"
    suffixes = (".csv", ".tsv")
    parameters = (*COLUMNS, "positive", *SPLITS, "images")

    def takes(self, request: Request) -> bool:
        """Whether a table has a column path."""
        path = request.path
        if not super().takes(request) or "path" in request.ignore_columns or not path.is_file():
            return False
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            line = file.readline(2**20).strip("\r\n")
        return "path" in [name.strip(' "') for name in line.split("\t" if path.suffix.lower() == ".tsv" else ",")]

    def read(self, request: Request) -> Bags:
        """Read the manifest, and look into each file."""
        path, where, bag = request.path, str(request.path), request.bag_column
        frame = tables.read_names_table(path)
        label = request.label_column if tables.has_labels(frame, request) else None
        split = request.split_column or ("split" if "split" in frame.columns else None)
        group = request.group_column
        if group is None:
            patient = tables.find_column(frame, ("group", *tables.PATIENT_COLUMNS))
            group = None if patient in (bag, request.label_column, split) else patient
        wanted = {"bag_column": bag, "": "path", "label_column": label, "group_column": group, "split_column": split}
        tables.require_columns(frame, wanted.items(), where)
        for name in filter(None, wanted.values()):
            for row in np.flatnonzero(frame[name].isna())[:1].tolist():
                raise BagDataError(f"Expected a {name} in each row, got none (in {where}, line {row + 2}); fill it in.")
        found = np.array([(path.parent / name).exists() for name in frame["path"]])
        if not found.all():
            names = frame["path"][~found].tolist()
            text = f"{len(names)} of {len(frame)} rows: {first_names(names)} (in {where})"
            if request.missing == "error" or not found.any():
                raise DataNotFoundError(
                    f"Expected a file for each row, got none for {text}; correct the paths, or leave such rows out "
                    f"with {given(missing='skip')}."
                )
            warnings.warn(f"no file, hence left out: {text}", stacklevel=3)
            frame = frame[found]
        paths = [path.parent / name for name in frame["path"]]
        check_options(request, paths)
        return assemble(
            paths,
            frame[bag].to_numpy(dtype=np.str_),
            labels=None if label is None else tables.binary_labels(frame, label, request.positive, where=where),
            groups=None if group is None else frame[group].to_numpy(dtype=np.str_),
            splits=None if split is None else tables.split_names(frame[split].to_numpy(dtype=np.str_), where),
            options=request.images,
            source=where,
            reader=request.reader,
            on_file=request.on_file,
        )
