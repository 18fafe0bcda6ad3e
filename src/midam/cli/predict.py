"""`midam predict`: score bags with a trained run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from jsonargparse import ArgumentParser, Namespace
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from midam.cli.parser import DATA, Parser
from midam.data import catalog
from midam.data.bags import Bags
from midam.errors import ConfigError, RunStoppedError
from midam.report.terminal import BagProgress, stdout_console
from midam.runs.apply import LoadedRun, load_run, predict_instances, predict_run, read_for
from midam.runs.folder import RunFolder, csv_text, write_text
from midam.runs.journal import ScoreJournal
from midam.runs.report import prediction_rows

_PART = ".part"
TABLES = {
    "labels": "label table of a folder of feature files, or of a store",
    "slides": "table of patients and their files, where the label table is one of patients",
    "bag_column": "column that names the bag or the file; default: the run's",
    "label_column": "column of the label; default: the run's",
    "positive": "value of the label column that is label 1; default: the run's",
    "groups": "column of the group; default: the run's",
    "missing": "what to do about rows whose file is missing; default: the run's",
}


def parser() -> ArgumentParser:
    """Options of the command."""
    predict = Parser(
        prog="midam predict", allow_abbrev=False, description="Score bags with a trained run; labels are not needed."
    )
    predict.add_argument("run", type=str, help="run folder")
    predict.add_argument("data", type=str, help=DATA)
    add_tables(predict)
    predict.add_argument(
        "--out", type=str, required=True, metavar="FILE.csv", help="where to write bag, score, probability"
    )
    predict.add_argument(
        "--instances",
        type=str | None,
        default=None,
        metavar="DIR",
        help="also write DIR/<bag>.h5 with score, weight and attention of each instance; needs midam[hdf5]",
    )
    return predict


def run(options: Namespace, console: Console) -> int:
    """Score bags; returns the exit code."""
    keep_data(options)
    trained = load_run(RunFolder(Path(options.run)))
    bags = read_for(trained, options.data, **{name: options[name] for name in TABLES})
    for name in ("out", "instances"):
        if options[name] is not None:
            keep_sources(bags, options.data, options[name], f"--{name}", folder=name == "instances")
    out = Path(options.out)
    call = {
        "run": trained.digest(),
        "chunk_size": trained.settings.run.chunk_size,
        "instances": _place(options.instances),
    }
    with ScoreJournal(out.with_name(f"{out.name}{_PART}"), call) as journal:
        scores, probabilities = _score(trained, bags, options.instances, journal, console)
        _write(out, bags, scores, probabilities)
        journal.remove()
    stdout_console().print(f"{len(bags)} bags scored: {escape(options.out)}")
    return 0


def _score(
    trained: LoadedRun, bags: Bags, instances: str | None, journal: ScoreJournal, console: Console
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    if len(journal):
        console.print(f"{escape(str(journal.path))} holds the scores of {len(journal)} bags: going on from there")
    try:
        with BagProgress("scoring", bags.sizes, console=console) as progress:
            if instances is None:
                return predict_run(trained, bags, journal=journal, on_bags=progress.update_all)
            return predict_instances(trained, bags, Path(instances), journal=journal, on_bag=progress.update)
    except KeyboardInterrupt:
        if not len(journal):
            raise
        raise RunStoppedError(
            f"stopped; {journal.path} holds {len(journal)} of {len(bags)} bags. The same command goes on from there"
        ) from None


def _write(out: Path, bags: Bags, scores: NDArray[np.float64], probabilities: NDArray[np.float64] | None) -> None:
    rows = prediction_rows(bags.ids, scores, labels=bags.labels, splits=None, probabilities=probabilities)
    columns = ["bag", *(["label"] if bags.labels is not None else []), "score", "probability"]
    write_text(out, csv_text(columns, rows))


def _place(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).resolve())


def add_tables(parser: ArgumentParser) -> None:
    """Add the options that say how labels are read, where the run's own settings do not hold."""
    for name, text in TABLES.items():
        kind = str | None if name != "missing" else Literal["error", "skip"] | None
        parser.add_argument(f"--{name}", type=kind, default=None, help=text)


def keep_data(options: Namespace) -> None:
    """Refuse to write over the data, its tables or a file of the run."""
    data = Path(options.data).resolve()
    keep_folder(options, "instances")
    if options.out is None:
        return
    out = Path(options.out).resolve()
    tables = [Path(options[name]).resolve() for name in ("labels", "slides") if options[name] is not None]
    if (
        out in (data, *tables)
        or (data.is_dir() and data in out.parents)
        or (out.exists() and Path(options.run).resolve() in out.parents)
    ):
        raise ConfigError(
            f"Expected a file outside the data and the run for --out, got {options.out}; choose a new name."
        )


def keep_folder(options: Namespace, name: str) -> None:
    """Refuse the data, or a place in it, as the folder that an option names."""
    data, folder = Path(options.data).resolve(), options.get(name)
    if folder is not None and _is_or_lies_in(Path(folder), [data]):
        raise ConfigError(f"Expected another folder than the data for --{name}, got {folder}; choose a new name.")


def keep_sources(bags: Bags, data: str, place: str, option: str, *, folder: bool) -> None:
    """Refuse to write over a file that bags were read from, or to put files among them, which would pass for data next.

    Parameters
    ----------
    bags : Bags
        Read from the data.
    data : str
        Its name; the folder of a set of the catalogue is kept as a whole.
    place : str
        Where something would be written.
    option : str
        Which says so.
    folder : bool
        Whether files are put into it, or it is a file itself.

    Raises
    ------
    ConfigError
        If that is the folder, or one, of the bags' files.
    """
    known = np.empty(0, dtype=object) if bags.sources is None else bags.sources
    files = {Path(part) for of_bag in known for part in str(of_bag).split("; ")}
    taken = {(file.parent if folder else file).resolve() for file in files}
    inside = Path(place).resolve() if Path(place).resolve() in taken else None
    set_at = catalog.describe(data)["location"] if catalog.is_name(data) else None
    if set_at not in (None, "bundled"):
        inside = inside or _is_or_lies_in(Path(place), [Path(set_at) if Path(set_at).is_dir() else Path(set_at).parent])
    if inside is not None:
        raise ConfigError(
            f"Expected a place outside the data for {option}, got {place}, which is, or is in, {inside} of the bags; "
            "choose another."
        )


def _is_or_lies_in(place: Path, folders: Iterable[Path]) -> Path | None:
    known = set(folders)
    return next((one for one in (place.resolve(), *place.resolve().parents) if one in known), None)
