"""Checks that a command does not write over or among the files that it reads, and the list of left-out files."""

import os
import re
from pathlib import Path

from rich.console import Console

from midam.cli.parser import Options
from midam.data.bags import Bags
from midam.data.sources.file_rows import source_paths
from midam.errors import ConfigError
from midam.files import is_stream
from midam.report.program import remark

# How the files of midam begin, and what they are in a message.
_FILES = {
    "scores": ("one of scores", rb'bag,([^\n]*,)?"?score(?![^_",\s])'),
    "calls": ("a list of calls", rb"bag(,[^\n]*,rank,|\s*$)"),
    "metrics": ("one of metrics", rb'\{\n  "(new|test|val|train)": \{'),
    "page": ("a page of midam", rb'<!doctype html>[^\0]{,99}<meta name="generator" content="midam">'),
    "left_out": ("a list of left-out files", rb"bag,file,reason,files_kept\s"),
    "key": ("a key of pseudonyms", rb"kind,name,pseudonym\s"),
}


def keep_other(options: Options, *outputs: tuple[str, Path]) -> None:
    """Refuse outputs over or among the data, its tables, files of the run or of others, and two in one file.

    `outputs` are paths, each with what it will hold, a key of `_FILES`; lists of left-out files may be beside them. A
    file that begins as midam's do is replaced. Without --out, a link in a run is replaced, and its target stays.
    """
    keep_folder(options, "instances")
    typed, values = options.out is not None, options.values
    inputs = [Path(one).resolve() for one in (options.data, values.get("labels"), values.get("slides")) if one]
    run = Path(options.run).resolve()
    places = [Path(os.path.realpath(path)) for _, path in outputs]  # unlike `resolve`, it takes a link to itself
    for (kind, path), place in zip(outputs if typed else (), places):
        if kind == "page" and path.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"Expected an .html file for --out, got {path}; name one.")
        among = any(place == one or (one.is_dir() and one in place.parents) for one in inputs)
        among |= place.exists() and run in place.parents and place.suffix != ".html"
        if among or Path(options.out).is_dir():
            text = "Expected a file outside the data and the run for --out"
            raise ConfigError(f"{text}, got {path}; choose a new name.")
        if places.count(place) > 1:
            raise ConfigError(f"Expected a file for each output, got {path} for two; choose another --out.")
    for kind, path in (*outputs, *(("left_out", _listing(path)) for _, path in outputs)):
        if path.is_file() and not is_stream(path) and (typed or not path.is_symlink()):
            with path.open("rb") as file:
                begin = file.read(4096)
            name, pattern = _FILES[kind]
            if begin and not re.match(pattern, begin):
                raise ConfigError(f"Expected a new file or {name} for --out, got {path}; choose a new name.")


def keep_folder(options: Options, name: str, *, data: str = "data") -> None:
    """Refuse an output folder that is the data or lies in it: the next command could read its files as data.

    `name` is the option that names the folder, `data` the option that names the data.
    """
    folder, place = getattr(options, name, None), getattr(options, data, None)
    if folder is not None and place is not None and Path(folder).resolve().is_relative_to(Path(place).resolve()):
        raise ConfigError(
            f"Expected another folder than the data for --{name}, got {folder}, "
            f"which is or lies in {place}; choose a place outside."
        )


def keep_sources(bags: Bags, place: str | None, option: str, *, folder: bool) -> None:
    """Refuse to write over a file of the bags, or next to it, where new files could be read as data later.

    `place` is a file or, with `folder`, a folder for files, if one was given; `option` is its name.
    """
    target = Path(os.path.realpath(place or os.devnull))  # unlike `resolve`, it raises nothing for a link to itself
    files = {path for index in range(len(bags)) for path in source_paths(bags, index)}
    if target in {(file.parent if folder else file).resolve() for file in files}:
        raise ConfigError(
            f"Expected a place outside the data for {option}, got {place}, but {target} holds the bags; choose another "
            "place."
        )


def tell_left_out(bags: Bags, out: Path, console: Console) -> None:
    """Write the left-out files and bags to OUT.left-out.csv next to the output, and print a note."""
    from midam.runs.data import left_out_notes, write_left_out

    write_left_out(bags, _listing(out))
    for note in left_out_notes(bags, _listing(out).name):
        remark(console, note)


def _listing(out: Path) -> Path:
    return out.with_name(f"{out.stem}.left-out.csv")
