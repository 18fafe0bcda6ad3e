"""`midam new`: write a commented settings file for data."""

import shlex
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from midam.cli.parser import DATA, Parser, add_settings
from midam.data.bags import Bags
from midam.data.sources.labels import label_columns
from midam.data.sources.request import Request
from midam.data.sources.table_columns import find_column, group_parts, is_group_like, is_label_like, is_split
from midam.data.sources.table_files import check_fields, header_of, read_instances
from midam.errors import BagDataError, ConfigError, Note, plural
from midam.lazy_imports import pandas as pd
from midam.report.program import note_result, say
from midam.settings import Settings
from midam.synonyms import is_id_like

_TEXT = """Read data once, and write a settings file for it: the columns that were found, and the options that matter
for data of this kind, each with its default and its effect. `midam fit --config FILE` trains with it."""
_BAGS = ("bag", "bag_id", "patient", "patient_id", "case", "case_id", "slide", "slide_id", "scan", "subject", "id")
_LABELS = ("label", "y", "target", "class", "outcome", "diagnosis", "status")
_READING = Settings.names("data", "cut")
_FILES = ("labels", "label_column", "positive", "groups", "split", "slides")
# The settings that are shown, by kind of data.
SHOWN = {
    "table": (
        *("bag_column", "label_column", "target", "positive", "groups", "split", "ignore", "categories"),
        *("covariates", "impute"),
    ),
    "feature files": (*_FILES, "bag_by", "missing"),
    "images": (*_FILES, "encoder", "patch_size", "stride"),
    "slides": (*_FILES, "encoder", "patch_size", "magnification", "tissue"),
    "volumes": (*_FILES, "encoder", "series", "axis", "spacing", "window", "slice_size"),
    "store": ("labels", "label_column", "groups", "split"),
}
_RUN = ("seed", "val_fraction", "test_fraction", "threshold")
_TRAINING = ("pooling", "objective", "epochs", "members", "lr", "num_instances", "select")


def parser() -> ArgumentParser:
    """Return the parser of the command."""
    new = Parser("new", _TEXT)
    new.add_argument("data", type=str, help=DATA)
    new.add_argument("--out", type=str, default="midam.yaml", metavar="FILE", help="file to write, which must be new")
    add_settings(new, _READING)
    return new


def run(options: Namespace, console: Console) -> int:
    """Read the data, and write the file; returns the exit code."""
    from midam.cli.outputs import keep_folder
    from midam.data.missing import missing_counts
    from midam.files import write_text
    from midam.runs.data import read_data
    from midam.targets import target_of

    keep_folder(options, "out")
    out = Path(options.out)
    if out.exists():
        raise ConfigError(f"Expected a new file for --out, got {out}, which is there; choose another name.")
    defaults, values = Settings().flat(), Settings(**{name: options[name] for name in _READING}).flat()
    given = {name: value for name, value in values.items() if value != defaults[name]}
    given |= _columns(options.data, given) if _is_table(options.data) else {}
    with console.status("reading"):
        bags = read_data(options.data, Settings(**given), impute="impute" in given or None)
    target_of(bags).check(bags)
    if "impute" not in given and missing_counts(bags).any():
        given["impute"] = "median"  # `fit` refuses missing values without it
    kind = _kind(options.data, bags)
    write_text(out, settings_text(options.data, kind, given, facts_of(bags)))
    note_result(settings=out, kind=kind)
    written = ", ".join(f"{name} {value}" for name, value in given.items()) or "all settings at their defaults"
    say(f"{kind}: {facts_of(bags)}\n{out}: {written}\nnext: midam fit --config {shlex.quote(str(out))}")
    return 0


def facts_of(bags: Bags) -> str:
    """Return the counts of bags and instances in one line."""
    positive = "" if bags.labels is None else f" ({int(bags.labels.sum())} positive)"
    shape = f" of {' x '.join(map(str, bags.instance_shape))}" if len(bags.instance_shape) > 1 else ""
    return f"{plural(len(bags), 'bag')}{positive}, {bags.num_instances} instances{shape}"


def settings_text(data: str, kind: str, given: dict[str, Any], facts: str) -> str:
    """Return the text of the file: detected settings, and other settings for this kind of data as comments."""
    from midam.settings.settings import describe_settings, yaml_text

    described = {setting.name: setting for setting in describe_settings()}
    lines = [
        "# Settings of a run: `midam fit --config FILE` trains by them, FILE being this file.",
        f"# Found: {kind}, {facts}.",
        "# A setting behind a # is at its default: take the # away to change it. `midam fit --help-all` lists all.",
        "",
        yaml_text({"data": data}).rstrip(),
    ]
    method = (
        "How one model is trained. With feature vectors, a setting from here on stands for --method midam: by default "
        "several methods are tried on the training bags, and the best are mixed."
    )
    shown = [*SHOWN[kind], *(name for name in given if name not in SHOWN[kind])]
    parts = [("The data", shown), ("Splits, seed and threshold", _RUN), (method, _TRAINING)]
    for title, names in parts:
        lines += ["", *_comment(title), ""]
        for name in names:
            setting = described[name]
            choices = f" Known: {', '.join(setting.known)}." if setting.known else ""
            lines += _comment(setting.text + choices)
            line = yaml_text({name: given.get(name, setting.default)}).rstrip()
            lines += [line if name in given else f"#{line}"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 98, break_on_hyphens=False)]


def _is_table(data: str) -> bool:
    from midam.data.sources.table_readers import TableReader

    return Path(data).is_file() and Path(data).suffix.lower() in TableReader.suffixes


def _kind(data: str, bags: Bags) -> str:
    from midam.data.store import is_store
    from midam.imaging.kinds import data_kind

    if is_store(data):
        return "store"
    if _is_table(data):
        return "table" if bags.instance_shape[1:] == () else "feature files"
    if kind := data_kind(data):
        return "slides" if kind == "slides" else "volumes" if kind.endswith("scans") else "images"
    return "feature files" if len(bags.instance_shape) == 1 else "volumes"


def _columns(path: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return settings of columns that are not `given`: bag and label that fit each other, common names first.

    Columns that are named, or have the default names, are not checked here: the reader of the table does that.
    """
    named = {name: given[name] for name in ("bag_column", "label_column", "target", "sheet") if name in given}
    request = Request(path, **named)
    # The labels are in another table, or the table is a manifest.
    if "labels" in given or "path" in header_of(request.path, sheet=request.sheet):
        return {}
    with warnings.catch_warnings(action="ignore"):  # `read_data` repeats them
        frame = read_instances(request.path, request)
    split, columns = find_column(frame, ["split"]), dict[str, Any]()
    if split and not {"split", "split_file"} & given.keys() and is_split(frame[split]):
        columns = {"split": split}
    aside = (*group_parts(given.get("groups")), *given.get("ignore", ()), *given.get("covariates", ()))
    whole, frame = frame, frame.drop(columns=[*aside, *columns.values()], errors="ignore")
    check_fields(frame, frame.columns, request.path)
    names, usual = list(frame.columns), request.bag_column
    labels = label_columns(names, request)
    complete = {*labels} <= {*names}
    incomplete = ("bag_column" in given and usual not in names) or ("label_column" in given and not complete)
    if incomplete or (usual in names and complete):
        return columns
    targets = [labels] if complete else [(name,) for name in _ranked(frame, _LABELS)]
    for bag in [usual] if usual in names else _ranked(frame, _BAGS):
        fit = [target for target in targets if _fit(frame, bag, target, named=complete)]
        if fit and not complete:  # a grade, or a class of several, next to a sex
            likely = [(name,) for name in names if is_label_like(name) and not is_label_like(fit[0][0])]
            fit += [target for target in likely if target not in fit and _fit(frame, bag, target, named=True)]
        if len(fit) == 1 or (fit and fit[0][0].lower() in _LABELS):
            if not complete:
                text = f"column {fit[0][0]} is taken for the label (in {path}); --label-column names another"
                warnings.warn(text, Note, stacklevel=3)
            others = [name for name in names if (is_id_like(name) or is_group_like(name)) and name != bag]
            for other in [name for name in others if _fit(frame, name, fit[0], named=complete)][:1]:
                text = f"column {bag} names the bags (in {path}); if {other} does, give --bag-column {other}"
                warnings.warn(text, Note, stacklevel=3)
            return columns | {"bag_column": bag} | ({} if complete else {"label_column": fit[0][0]})
        if fit:
            raise BagDataError(
                f"Expected one column that may be the label of a bag ({bag}), got {', '.join(map(','.join, fit))} (in "
                f"{path}); name it with --label-column, or several labels as a,b."
            )
    first = _ranked(frame, _BAGS)[:1]
    if complete and first and first[0].lower() in _BAGS:
        return columns | {"bag_column": first[0]}
    for group in [name for name in group_parts(given.get("groups")) if name in whole]:
        if any(_fit(whole, group, target, named=complete) for target in targets):
            raise BagDataError(
                f"Expected a column of groups of bags with --groups, got {group}, which seems to name the bags (in "
                f"{path}); give --bag-column {group} and leave out --groups, or name the bags with --bag-column."
            )
    raise BagDataError(
        f"Expected a column with the bags and one with their labels of two values, got no such two among "
        f"{', '.join(names)} (in {path}); name them with --bag-column and --label-column."
    )


def _ranked(frame: "pd.DataFrame", common: Sequence[str]) -> list[str]:
    """Return column names: common names first, then columns with more values."""
    place, values = {name: number for number, name in enumerate(common)}, frame.nunique()
    return sorted(frame.columns, key=lambda name: (place.get(name.lower(), len(place)), -values[name]))


def _fit(frame: "pd.DataFrame", bag: str, labels: tuple[str, ...], *, named: bool) -> bool:
    """Return whether each bag of column `bag` has one value of each label; no gap and two overall unless `named`."""
    if bag in labels:
        return False
    rows = frame[[bag, *labels]].dropna(subset=[bag])
    counts = rows.groupby(bag, sort=False)[list(labels)].nunique()
    two = named or (rows[labels[0]].nunique() == 2 and not rows[labels[0]].hasnans)
    return two and 2 <= len(counts) < len(rows) and int(counts.to_numpy().max()) == 1
