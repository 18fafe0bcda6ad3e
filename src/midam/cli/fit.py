"""`midam fit`: train a bag classifier and test it."""

import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_folder
from midam.cli.parser import DATA, SETTINGS, Options, Parser
from midam.errors import ConfigError, MidamError
from midam.methods.callbacks import Callbacks
from midam.methods.names import DEFAULT, TAKEN, choose_method, method_title, refuse_settings
from midam.processes import Processes, restarted
from midam.registry import is_network, take_known
from midam.report.program import note_result, stdout_console
from midam.runs.folder import RunFolder, free_folder, read_run_config, require_repeated
from midam.settings import Settings, read_yaml, refuse_unknown

AUTO = "auto"

_TEXT = """Train a bag classifier that maximizes AUC, and test it. In a table, a row is an instance; one column names
its bag, one holds the label (0 and 1, or two words), the rest are features. The run folder gets weights, predictions,
metrics and plots. Ctrl-C keeps finished epochs, --resume continues."""


def parser() -> Parser:
    """Return the parser of the command."""
    fit = Parser("fit", _TEXT)
    fit.add_argument("data", nargs="?", help=DATA)
    fit.add_text("--method", metavar="NAME", help="a method of midam compare; default: auto, or midam on pixels")
    fit.add_text("--out", help="run folder; default: a new one in runs/")
    fit.add_text("--resume", metavar="RUN", help="continue this run in place")
    text = "settings as YAML, such as RUN/config.yaml; options override them"
    fit.add_text("--config", metavar="FILE", help=text)
    text = "processes on this machine that train together, each on a GPU, or all on the CPU; default: 1"
    fit.add_hidden(fit.add_argument("--devices", type=int, metavar="N", help=text))
    text = "minutes until torch gives up waiting for another process; default: 30"
    fit.add_hidden(fit.add_argument("--timeout", type=float, default=30.0, metavar="MINUTES", help=text))
    fit.add_settings()
    return fit


def complete(options: Options) -> None:
    """Add the settings of --config, and choose the method that these settings mean.

    A network as encoder, which embeds the data first, becomes the option `network`.
    Raises a `ConfigError` for settings next to --resume that are not the run's own, and for unknown keys in the file.
    """
    given = dict(options.values)
    if [word.partition("=")[0] for word in shlex.split(options.words)].count("--config") > 1:
        raise ConfigError("Expected --config once, got it several times; join the files.")
    if options.resume is not None:
        _refuse_changes(options, given)
    values = {} if options.config is None else _from_file(options, given)
    options.values = {**values, **given}
    options.network = None
    if is_network(str(options.values.get("encoder", ""))):
        options.network = options.values.pop("encoder")
    if options.method is not None and given:
        refuse_settings(options.method, {name: given[name] for name in given if name in options.values})
    if options.method is None and any(name not in TAKEN for name in options.values):
        options.method = DEFAULT
    if options.config is not None:
        Settings.from_flat(options.values, source=f"{options.config}, or given")


def _refuse_changes(options: Options, given: Mapping[str, Any]) -> None:
    config = RunFolder(Path(options.resume)).config
    kept = read_yaml(config) if config.is_file() else {}
    changed = [name for name in given if name != "logger_args" and (name not in kept or kept[name] != given[name])]
    changed += [name for name in ("config", "out", "method") if getattr(options, name) is not None]
    if changed:
        raise ConfigError(
            f"Expected no settings with --resume, got --{changed[0].replace('_', '-')}: a resumed run keeps its own; "
            "start a new one to change them."
        )


def _from_file(options: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the file; its data and method become options that were not given."""
    path = Path(options.config)
    values = dict(read_yaml(path))
    if not isinstance(data := values.get("data"), str | None):
        raise ConfigError(f"Expected data as text, got {data!r} (in {path}); name a file, a folder or a known set.")
    others = ("data", "method")
    refuse_unknown([key for key in values if key not in (*others, "plugins")], SETTINGS, source=str(path))
    if "logger_args" not in given:
        require_repeated(values.get("logger_args") or {}, None, path)
    values = take_known(values, path)
    for name in others:
        value = values.pop(name, None)
        if value is not None and getattr(options, name) is None:
            setattr(options, name, str(value))
    return values


def run(options: Options, console: Console) -> int:
    """Train, or continue a run; returns the exit code."""
    from midam.cli.embed import embed_first

    embed_first(options, console)
    processes = Processes.launched(options.devices, options.timeout)
    with _following(processes, console) if processes.rank else nullcontext():
        return _run(options, console, processes)


def _run(options: Options, console: Console, processes: Processes) -> int:
    from midam.report.terminal import FitProgress, print_summary
    from midam.runs.fit import fit_run, resume_run

    # torchrun restarts the same command after the first start has made the run folder.
    again = options.out is not None and restarted() and RunFolder(Path(options.out)).config.exists()
    resumes = options.resume is not None or again
    fit: Callable[..., dict[str, Any]]
    if resumes:
        folder = RunFolder(Path(options.out if again else options.resume))
        settings, _, method = read_run_config(folder)
        fit = partial(resume_run, options.data, folder, logger_args=options.values.get("logger_args"))
    else:
        if options.data is None:
            raise ConfigError(f"Expected DATA, got none; give a {DATA}.")
        settings, method = choose_method(options.method, options.settings())
        if not processes.rank:
            keep_folder(options, "out")
        folder = _run_folder(options, settings, method)
        fit = partial(fit_run, options.data, settings, folder, method=options.method)

    def tell(used: Settings, method: str | None) -> None:
        on = f" in {processes.count} processes" if processes.count > 1 else ""
        why = f"; --method {DEFAULT} trains one model alone" if method == AUTO and options.method is None else ""
        data = getattr(options, "named", options.data)
        console.print(escape(f"training {method_title(method, used, sign='x')} on {data}{on}{why}"))

    with FitProgress(settings.training.epochs if method is None else 1, console=console) as bar:
        calls = Callbacks(
            on_epoch=lambda row, _: bar.update(row),
            on_stage=bar.stage,
            on_bags=bar.scored,
            on_candidate=bar.candidate,
        )
        summary = fit(processes=processes, callbacks=calls if resumes else replace(calls, on_start=tell))
    if not processes.rank:
        note_result(run=folder.root, summary=summary)
        print_summary(stdout_console(), summary, run=str(folder.root))
    return 0


@contextmanager
def _following(processes: Processes, console: Console) -> Iterator[None]:
    """Print only errors, and leave Ctrl-C to the leading process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    console.quiet = True
    try:
        yield
    except MidamError:
        console.quiet = False
        console.print(f"process {processes.rank} of {processes.count} (from 0):")
        raise


def _run_folder(options: Options, settings: Settings, method: str | None) -> RunFolder:
    if options.out is not None:
        return RunFolder(Path(options.out))
    kind = method or f"{settings.method.pooling}-{settings.method.estimator}"
    name = f"{Path(options.data).stem}-{kind}-seed{settings.run.seed}"
    return free_folder(Path("runs"), name)
