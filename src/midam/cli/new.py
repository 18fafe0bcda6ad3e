"""`midam new`: write a commented settings file for data."""

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from midam.cli.parser import DATA, Parser
from midam.errors import BagDataError, ConfigError, plural
from midam.report.program import note_result, say

if TYPE_CHECKING:
    import pandas as pd

    from midam.data.bags import Bags

_TEXT = """Read data once, and write a settings file for it: the columns that were found, and the options that matter
for data of this kind, each with its default and what it does. `midam fit --config FILE` trains with it."""
_BAGS = ("bag", "bag_id", "patient", "patient_id", "case", "case_id", "slide", "slide_id", "scan", "subject", "id")
_LABELS = ("label", "y", "target", "class", "outcome", "diagnosis", "status")
_ROWS = 200_000  # rows of a table that are read to find its columns
_FILES = ("labels", "label_column", "positive", "groups", "split", "slides")
# The settings that are shown, by kind of data.
SHOWN = {
    "table": (
        *("bag_column", "label_column", "target", "positive", "groups", "split", "ignore", "categories", "order"),
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
    to = Parser("new", _TEXT)
    to.add_argument("data", type=str, help=DATA)
    to.add_argument("--out", type=str, default="midam.yaml", metavar="FILE", help="file to write, which must be new")
    for name, text in (("bag_column", "the bag"), ("label_column", "its label")):
        to.add_text(f"--{name}", help=f"column of a table that names {text}; default: the one that does")
    to.add_text("--labels", help="label table of a folder of files")
    to.add_text("--groups", help="column that names a patient of several bags; default: none")
    return to


def run(options: Namespace, console: Console) -> int:
    """Read the data, and write the file; returns the exit code."""
    from midam.cli.outputs import keep_folder
    from midam.data.missing import missing_counts
    from midam.files import write_text
    from midam.runs.data import read_data
    from midam.settings import Settings

    keep_folder(options, "out")
    out = Path(options.out)
    if out.exists():
        raise ConfigError(f"Expected a new file for --out, got {out}, which is there; choose another name.")
    given = {n: options[n] for n in ("bag_column", "label_column", "labels", "groups") if options[n] is not None}
    table = _is_table(options.data)
    if table:
        given |= _columns(options.data, **given)
    usual = Settings().flat()
    given = {name: value for name, value in given.items() if value != usual[name]}
    with console.status("reading"):
        bags = read_data(options.data, Settings(**given, **({"impute": "median"} if table else {})))
    if table and missing_counts(bags).any():
        given["impute"] = "median"  # `fit` refuses missing values without it
    kind = _kind(options.data, bags)
    write_text(out, settings_text(options.data, kind, given, facts_of(bags)))
    note_result(settings=out, kind=kind)
    say(f"{kind}: {facts_of(bags)}\nnext: midam fit --config {shlex.quote(str(out))}")
    return 0


def facts_of(bags: "Bags") -> str:
    """Return the counts of bags and instances in one line."""
    positive = "" if bags.labels is None else f" ({int(bags.labels.sum())} positive)"
    shape = f" of {' x '.join(map(str, bags.instance_shape))}" if len(bags.instance_shape) > 1 else ""
    return f"{plural(len(bags), 'bag')}{positive}, {bags.num_instances} instances{shape}"


def settings_text(data: str, kind: str, given: dict[str, str], facts: str) -> str:
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
    parts = [("The data", SHOWN[kind]), ("Splits, seed and threshold", _RUN), (method, _TRAINING)]
    for title, names in parts:
        lines += ["", *_comment(title), ""]
        for name in names:
            setting = described[name]
            known = f" Known: {', '.join(setting.known)}." if setting.known else ""
            lines += _comment(setting.text + known)
            line = yaml_text({name: given.get(name, setting.default)}).rstrip()
            lines += [line if name in given else f"#{line}"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 98, break_on_hyphens=False)]


def _is_table(data: str) -> bool:
    from midam.data.sources.table_readers import TableReader

    return Path(data).is_file() and Path(data).suffix.lower() in TableReader.suffixes


def _kind(data: str, bags: "Bags") -> str:
    from midam.data.store import is_store
    from midam.embed.kinds import data_kind

    if is_store(data):
        return "store"
    if _is_table(data):
        return "table" if bags.instance_shape[1:] == () else "feature files"
    if kind := data_kind(data):
        return "slides" if kind == "slides" else "volumes" if kind.endswith("scans") else "images"
    return "feature files" if len(bags.instance_shape) == 1 else "volumes"


def _columns(path: str, *, bag_column: str = "", label_column: str = "", **given: str) -> dict[str, str]:
    """Return the columns of bag and label: as given, or two that fit each other, common names first."""
    frame = _head(Path(path)).drop(columns=given.get("groups", ""), errors="ignore")
    names = list(frame.columns)
    if "labels" in given or "path" in names:  # the labels are in another table, or the table is a manifest
        return {}
    for bag in [bag_column] if bag_column else _ranked(frame, _BAGS):
        targets = [label_column] if label_column else _ranked(frame, _LABELS)
        fit = [label for label in targets if _fit(frame, bag, label, named=bool(label_column))]
        if len(fit) == 1 or (fit and fit[0].lower() in _LABELS):
            return {"bag_column": bag, "label_column": fit[0]}
        if fit:
            raise BagDataError(
                f"Expected one column that may be the label of a bag ({bag}), got {', '.join(fit)} (in {path}); name "
                "it with --label-column."
            )
    raise BagDataError(
        f"Expected a column that names the bag and one with its label of two values, found no two that fit among "
        f"{', '.join(names)} (in {path}); name them with --bag-column and --label-column."
    )


def _head(path: Path) -> "pd.DataFrame":
    """Return the first rows of a table."""
    from midam.data.sources.table_files import read_names

    if path.suffix.lower() == ".parquet":
        from midam.errors import need_package

        parquet = need_package("pyarrow.parquet", "to read Parquet", extra="parquet", package="pyarrow", where=path)
        table: pd.DataFrame = next(parquet.ParquetFile(path).iter_batches(_ROWS)).to_pandas()
        return table
    return read_names(path).head(_ROWS)


def _ranked(frame: "pd.DataFrame", usual: Sequence[str]) -> list[str]:
    """Return column names: common names first, then columns with more values."""
    place, values = {name: number for number, name in enumerate(usual)}, frame.nunique()
    return sorted(frame.columns, key=lambda name: (place.get(name.lower(), len(place)), -values[name]))


def _fit(frame: "pd.DataFrame", bag: str, label: str, *, named: bool) -> bool:
    """Return whether each bag of column `bag` has one `label`, of two values unless `named`, and some several rows."""
    if bag == label or not {bag, label} <= set(frame.columns):
        return False
    rows = frame[[bag, label]].dropna()
    counts = rows.groupby(bag, sort=False)[label].nunique()
    return 2 <= len(counts) < len(rows) and int(counts.max()) == 1 and (named or rows[label].nunique() == 2)
