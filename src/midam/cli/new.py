"""`midam new`: write a commented settings file for data."""

import re
import shlex
import textwrap
from pathlib import Path

from rich.console import Console

from midam.cli.outputs import keep_folder
from midam.cli.parser import DATA, USUAL, Options, Parser
from midam.data.sources.inputs import TableReader
from midam.data.sources.table_files import header_of
from midam.errors import BagDataError, ConfigError, plural
from midam.report.program import note_result, say
from midam.settings import Settings
from midam.settings.settings import describe_settings, yaml_text

_TEXT = """Read data once, and write a settings file for it: the columns of a table by usual names, such as patient and
diagnosis, the given settings, and others that matter for most data, each with its default and its effect.
`midam fit --config FILE` trains with it."""
_PATIENTS = "patient patientid subject subjectid case caseid"
_USUAL = {  # without separators; the finest unit is the bag
    "bag_column": f"bag bagid slide slideid scan scanid image imageid sample sampleid case caseid {_PATIENTS}",
    "label_column": "label target class outcome diagnosis status",
    "groups": _PATIENTS,
}
_SHOWN = {*USUAL, "positive", "covariates", "impute", "val_fraction", "threshold"}
_HEAD = """# Settings of a run: `midam fit --config FILE` trains by them, FILE being this file.
# A setting behind a # is at its default: take the # away to change it. `midam fit --help-all` lists all.
# With feature vectors, a setting of the method or the training stands for --method midam: by default several methods
# are tried on the training bags, and the best are mixed."""


def parser() -> Parser:
    """Return the parser of the command."""
    new = Parser("new", _TEXT)
    new.add_argument("data", help=DATA)
    new.add_argument("--out", default="midam.yaml", metavar="FILE", help="file to write, which must be new")
    new.add_settings(Settings.names("data", "cut"))
    return new


def run(options: Options, console: Console) -> int:
    """Read the data, and write the file; returns the exit code."""
    from midam.data.missing import missing_counts
    from midam.files import write_text
    from midam.runs.data import read_data
    from midam.targets import target_of

    keep_folder(options, "out")
    out = Path(options.out)
    if out.exists():
        raise ConfigError(f"Expected a new file for --out, got {out}, which is there; choose another name.")
    usual = _usual_columns(options)
    settings = Settings(**{**usual, **options.values})
    given = {name: value for name, value in settings.flat().items() if value != Settings().flat()[name]}
    try:
        with console.status("reading"):
            bags = read_data(options.data, settings, looks=True, impute="impute" in given or None)
    except BagDataError as error:
        text = f" The column {usual.get('bag_column')!r} is taken for the bag, by its name: --bag-column names another."
        raise BagDataError(f"{error}{text if 'bag_column' in usual else ''}") from error
    target_of(bags).check(bags)
    if "impute" not in given and missing_counts(bags).any():
        given["impute"] = "median"  # `fit` refuses missing values without it
    facts = f"{plural(len(bags), 'bag')}, {plural(bags.num_instances, 'instance')}"
    lines = [_HEAD, f"# The data hold {facts}.", yaml_text({"data": options.data}).rstrip()]
    for setting in describe_settings():
        if setting.name in {*_SHOWN, *given}:
            line = yaml_text({setting.name: given.get(setting.name, setting.default)}).rstrip()
            lines += ["", *(f"# {part}" for part in textwrap.wrap(setting.text, 98, break_on_hyphens=False))]
            lines.append(line if setting.name in given else f"#{line}")
    write_text(out, "\n".join(lines) + "\n")
    note_result(settings=out)
    written = ", ".join(f"{name} {value}" for name, value in given.items()) or "all settings at their defaults"
    say(f"{facts}\n{out}: {written}\nnext: midam fit --config {shlex.quote(str(out))}")
    return 0


def _usual_columns(options: Options) -> dict[str, str]:
    """Return the columns of bags, labels and groups that a table has under usual names, if it holds its labels."""
    path, values = Path(options.data), options.values
    is_table = path.is_file() and path.suffix.lower() in TableReader.suffixes and "labels" not in values
    header = header_of(path, sheet=values.get("sheet")) if is_table else []
    taken = {name for text in values.values() for name in (text if isinstance(text, list) else str(text).split(","))}
    free = {re.sub(r"[\W_]", "", name.lower()): name for name in reversed(header) if name not in taken}
    usual = dict[str, str]()
    for setting, words in {} if "path" in header else _USUAL.items():  # a manifest
        word = next((word for word in words.split() if word in free), None)
        if word is not None and setting not in values:
            usual[setting] = free.pop(word)
    return usual
