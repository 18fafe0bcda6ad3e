"""Checks that a command does not write over or among the files that it reads, and the list of left-out files."""

import os
from pathlib import Path

from rich.console import Console

from midam.cli.parser import Options
from midam.data.bags import Bags
from midam.data.sources.file_rows import source_paths
from midam.errors import ConfigError
from midam.report.program import remark


def keep_data(options: Options, *, run: str | None = None, path: Path | None = None) -> None:
    """Refuse to write `path` (--out) over the data, its tables or a file of `run`."""
    keep_folder(options, "instances")
    if options.out is None:
        return
    run, path = options.run if run is None else run, Path(options.out) if path is None else path
    data, out = Path(options.data).resolve(), path.resolve()
    tables = [Path(options.values[name]).resolve() for name in ("labels", "slides") if options.values.get(name)]
    if (
        out in (data, *tables)
        or (data.is_dir() and data in out.parents)
        or (out.exists() and Path(str(run)).resolve() in out.parents and out.suffix != ".html")
    ):
        raise ConfigError(f"Expected a file outside the data and the run for --out, got {path}; choose a new name.")


def html_file(options: Options) -> Path | None:
    """Return the HTML file that --out names, if any."""
    if options.out is not None and Path(options.out).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"Expected an .html file for --out, got {options.out}; name one.")
    return None if options.out is None else Path(options.out)


def keep_other(path: Path) -> None:
    """Refuse to write scores over a file that holds something else."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            columns = file.readline(4096).strip().split(b",")
        scores = [name for name in columns if name == b"score" or name.startswith((b"score_", b'"score_'))]
        if columns[:1] != [b"bag"] or not scores:
            raise ConfigError(f"Expected a new file or one of scores for --out, got {path}; choose a new name.")


def keep_folder(options: Options, name: str, *, data: str = "data") -> None:
    """Refuse an output folder that is the data or lies in it: the next command could read its files as data.

    `name` is the option that names the folder, `data` the option that names the data.
    """
    folder, place = getattr(options, name, None), getattr(options, data, None)
    if folder is not None and place is not None and Path(folder).resolve().is_relative_to(Path(place).resolve()):
        raise ConfigError(
            f"Expected another folder than the data for --{name}, got {folder}, which is or lies in {place}; choose a "
            "place outside."
        )


def keep_sources(bags: Bags, place: str, option: str, *, folder: bool) -> None:
    """Refuse to write over a file of the bags, or next to it, where new files could be read as data later.

    `place` is a file or, with `folder`, a folder for files; `option` is its name.
    """
    files = {path for index in range(len(bags)) for path in source_paths(bags, index)}
    places = {(file.parent if folder else file).resolve() for file in files}
    target = Path(os.path.realpath(place))  # unlike `resolve`, it raises nothing for a link to itself
    if target in places:
        raise ConfigError(
            f"Expected a place outside the data for {option}, got {place}, but {target} holds the bags; choose another "
            "place."
        )


def tell_left_out(bags: Bags, out: Path, console: Console) -> None:
    """Write the left-out files and bags to OUT.left-out.csv next to the output, and print a note."""
    from midam.runs.data import left_out_notes, write_left_out

    listing = out.with_name(f"{out.stem}.left-out.csv")
    write_left_out(bags, listing)
    for note in left_out_notes(bags, listing.name):
        remark(console, note)
