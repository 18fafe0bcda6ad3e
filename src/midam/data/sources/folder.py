"""A folder with one file for each slide, image or volume: of features, or that itself; and a label table."""

import functools

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.assemble import assemble
from midam.data.sources.find_files import find_files, warn_of_left_alone
from midam.data.sources.label_table import read_labels
from midam.data.sources.reader import COLUMNS, LABELS, SPLITS, BagReader, Request, check_options, file_suffix
from midam.data.sources.scan_folders import scan_folders
from midam.errors import BagDataError, ConfigError, given


class FolderReader(BagReader):
    """A folder of files of one format, which are bags or, with `bag_by`, parts of a patient.

    Files that the label table does not name are left out, with a warning. Without a table all of them are read.
    """

    what = "a folder of features"
    parameters = (*COLUMNS, *LABELS, "bag_by", *SPLITS, "images")

    def takes(self, request: Request) -> bool:
        """Whether it is a folder."""
        return request.path.is_dir()

    def read(self, request: Request) -> Bags:
        """Read the table, and look into each file."""
        folder, by_patient = request.path, request.bag_by == "patient"
        if request.labels is None and (request.require_labels or by_patient):
            what = f"{given(bag_by='patient')}" if by_patient else "a folder of features"
            table = "table of patients" if by_patient else "label table"
            raise ConfigError(f"Expected `labels` with {what}, got none (in {folder}); name a {table}.")
        tables = [path for path in (request.labels, request.slides) if path is not None]
        paths = find_files(folder, leave=tables, reader=request.reader)
        paths, names = scan_folders(paths, folder, request)
        check_options(request, paths)
        assembled = functools.partial(
            assemble, options=request.images, source=str(folder), reader=request.reader, on_file=request.on_file
        )
        if request.labels is None:
            warn_of_left_alone(folder, paths)
            return assembled(paths, names)
        said = read_labels(request, names, {file_suffix(path) for path in paths})
        paths, names = [paths[i] for i in said.index], [names[i] for i in said.index]
        bags, groups = np.array(names), said.groups
        if by_patient:
            if said.patients is None:
                raise BagDataError(
                    f"Expected a column of patients, got none that is full (in {request.labels}); name it with "
                    f"`group_column`, or leave out {given(bag_by='patient')}."
                )
            # A patient who is a bag is no group beside it.
            bags, groups = said.patients, groups if request.group_column is not None else None
        return assembled(paths, bags, labels=said.labels, groups=groups, splits=said.splits, by_name=True)
