"""`midam data`: describe data, import it into a store, and verify a store."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from midam.cli.outputs import keep_folder
from midam.cli.parser import DATA, Options, Parser
from midam.data.bags import Bags
from midam.errors import ConfigError, plural, require_counts
from midam.report.program import note_result, remark, say, stdout_console
from midam.settings import Settings

_DESCRIBE = """Show counts, bag sizes, labels, groups and splits of data, and warnings: bag sizes or single features
that predict the label, duplicate bags, constant features, groups in several splits, a class that is missing or rare,
few events."""
_IMPORT = """Write data into a store: a folder that opens at once, whatever its size, and that training reads by rows.
To continue a stopped import, repeat the command."""
UNLABELED = "the bags have no labels, as for predict"
_VERIFY = "Read a whole store and compare each bag with its digest; exit code 1 and their names if some are damaged."
MASKS = (
    "folder of masks (images, NIfTI) or annotations (GeoJSON), named like the files, or a CSV of marked instances: "
    "labels of patches and slices, which evaluate explanations and never train"
)
_ACTIONS = {
    "describe": (_DESCRIBE, "describe data, and warn about problems in it"),
    "import": (_IMPORT, "write data into a store"),
    "verify": (_VERIFY, "compare a store with its digests"),
}


def parser() -> Parser:
    """Return the parser of the command and its actions."""
    from joblib import cpu_count

    command = Parser("data", "Describe, import or verify data.")
    actions = command.add_subparsers(dest="action", metavar="|".join(_ACTIONS), required=True)
    parsers = {name: actions.add_parser(name, help=short, text=text) for name, (text, short) in _ACTIONS.items()}
    parsers["describe"].add_argument("name", help=DATA)
    parsers["import"].add_argument("source", help=DATA)
    parsers["import"].add_text("--out", required=True, metavar="STORE", help="folder to write")
    parsers["import"].add_text("--instance-masks", metavar="PATH", help=MASKS)
    parsers["verify"].add_argument("store", help="folder of a store")
    for name in ("import", "verify"):
        text = "parallel bags; default: one per core"
        parsers[name].add_argument("--jobs", type=int, default=cpu_count(), metavar="N", help=text)
    for name in ("describe", "import"):
        parsers[name].add_argument("--unlabeled", action="store_true", help=UNLABELED)
        parsers[name].add_settings(Settings.names("data", "cut"))
    return command


def run(options: Options, console: Console) -> int:
    """Run the action; returns the exit code."""
    return {"describe": _describe, "import": _import, "verify": _verify}[options.action](options, console)


def _describe(options: Options, console: Console) -> int:
    from midam.data.sources.folder import NoLabelsError
    from midam.report.describe import describe_bags
    from midam.report.terminal import print_description, print_warnings
    from midam.report.words import as_flags

    settings = options.settings()
    reading: dict[str, Any] = {"impute": settings.data.impute != "none" or None, "looks": True}
    try:
        bags = read_bags_of(options.name, settings, unlabeled=options.unlabeled, **reading)
    except NoLabelsError:
        remark(console, "no labels found, the bags are described without; `labels` names a table of them")
        bags = read_bags_of(options.name, settings, unlabeled=True, **reading)
    description = describe_bags(options.name, bags, data=settings.data)
    out = stdout_console()
    print_description(out, options.name, description.facts, bags)
    print_warnings(out, description)
    note_result(facts=dict(description.facts), warnings=[*map(as_flags, description.warnings)])
    note_result(notes=[*map(as_flags, description.notes)])
    return 0


def _import(options: Options, console: Console) -> int:
    from midam.data.store import write_store
    from midam.data.store.write import require_free
    from midam.report.terminal import BagProgress

    require_counts(jobs=options.jobs)
    require_free(options.out)
    keep_folder(options, "out", data="source")
    settings = options.settings()
    if settings.data.impute != "none":
        raise ConfigError(
            "Expected no --impute for a store, which would fill the training bags from the test bags; train on the "
            "table itself."
        )
    bags = with_masks(read_bags_of(options.source, settings, unlabeled=options.unlabeled), options)
    with BagProgress("importing", bags.sizes, console=console) as progress:
        store = write_store(bags, options.out, jobs=options.jobs, on_bag=progress.update)
    note_result(store=store, bags=len(bags), instances=bags.num_instances)
    tell_store(options.out, bags, "instances")
    return 0


def tell_store(out: str, bags: Bags, instances: str) -> None:
    """Print what a new store holds, and what to do with it."""
    from rich.filesize import decimal

    from midam.report.describe import stored_bytes

    size, labeled = decimal(stored_bytes(Path(out))), bags.labels is not None or bags.outcome is not None
    say(f"store: {out} ({plural(len(bags), 'bag')}, {bags.num_instances} {instances}, {size})")
    say(f"next: midam {'fit' if labeled else 'predict RUN'} {out}")


def with_masks(bags: Bags, options: Options) -> Bags:
    """Return bags with labels of their instances from the masks that the options name, if any."""
    from midam.explain.annotations import label_by_masks

    return bags if options.instance_masks is None else label_by_masks(bags, options.instance_masks)


def _verify(options: Options, console: Console) -> int:
    from midam.data.store import open_store, verify_store
    from midam.report.terminal import BagProgress

    require_counts(jobs=options.jobs)
    bags = open_store(options.store)
    with BagProgress("verifying", bags.sizes, console=console) as progress:
        damaged = verify_store(options.store, jobs=options.jobs, on_bag=progress.update)
    for bag, file in damaged:
        console.print(f"[red]damaged:[/] bag {escape(bag)} (in {escape(str(Path(options.store) / file))})")
    names = sorted({bag for bag, _ in damaged})
    note_result(store=options.store, bags=len(bags), damaged=names)
    if damaged:
        console.print(f"{len(names)} of {len(bags)} bags are damaged; import the data again")
        return 1
    say(f"sound: {options.store} ({plural(len(bags), 'bag')}, {bags.num_instances} instances)")
    return 0


def read_bags_of(data: str, settings: Settings, *, unlabeled: bool = False, **more: Any) -> Bags:
    """Read bags by the settings; labels are required unless the bags are `unlabeled`."""
    from midam.data.store import is_store
    from midam.runs.data import read_data

    # A store states whether its bags have labels.
    labeled = not (unlabeled or is_store(data))
    return read_data(data, settings, require_labels=labeled, bad_labels="ignore" if unlabeled else "error", **more)
