"""`midam explain`: show which instances decided the score of a bag."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from midam.cli.data import MASKS, with_masks
from midam.cli.outputs import keep_folder, keep_sources, tell_left_out
from midam.cli.parser import Options, Parser
from midam.cli.predict import add_inputs, read_inputs
from midam.data.bags import Bags
from midam.data.sources.inputs import rows_of
from midam.errors import plural, require_counts
from midam.report.program import note_result, say, stdout_console


def parser() -> Parser:
    """Return the parser of the command."""
    explain = Parser("explain", "Show which instances decided the score of a bag: pictures, tables and GeoJSON.")
    add_inputs(explain)
    text = "bags, groups (patients) or all; default: highest and lowest score (of the run's data: test bags)"
    explain.add_argument("--bags", nargs="+", default=[], metavar="ID", help=text)
    text = "class or label whose score is explained, if the run has several; default: the most probable of each bag"
    explain.add_text("--class", metavar="NAME", help=text)
    explain.add_argument("--top", type=int, default=8, metavar="N", help="instances shown one by one (default: 8)")
    text = "folder with the slides of feature files, named like the bags (slide files, PNG or JPEG), or moved files "
    explain.add_text("--images", metavar="DIR", help=f"{text}that were embedded")
    explain.add_text("--instance-masks", metavar="PATH", help=MASKS)
    explain.add_text("--out", metavar="DIR", help="folder for the files; default: explain in the run")
    return explain


def run(options: Options, console: Console) -> int:
    """Explain bags; returns the exit code."""
    from midam.explain import run as explaining
    from midam.explain.page import PAGE
    from midam.explain.words import bag_lines
    from midam.report.terminal import BagProgress
    from midam.runs.apply import settings_for

    require_counts(top=options.top)
    keep_folder(options, "out")

    def wanted(bags: Bags) -> Sequence[int]:
        keep_sources(bags, options.out, "--out", folder=True)
        return sorted(explaining.find_bags(bags, options.bags)) or range(len(bags))

    trained, bags = read_inputs(options, console, chosen=wanted)
    bags = with_masks(bags, options)
    chosen = explaining.ExplainOptions(options.top, options.images, getattr(options, "class"))
    explaining.images_of(chosen, bags)
    index = explaining.find_bags(bags, options.bags)
    if not index:
        test = explaining.own_test_bags(trained, bags)
        among = test or range(len(bags))
        with BagProgress("scoring", bags.sizes[among], console=console) as progress:
            index = explaining.extreme_bags(trained, bags, among, label=chosen.label, on_bags=progress.update_all)
        candidates = plural(len(among), "test bag" if test else "bag") + (" of the run" if test else "")
        say(f"the highest and the lowest scored of the {candidates}; name others with --bags")
    folder = Path(options.out or explaining.own_folder(Path(options.run), trained, bags, index, chosen))
    settings = settings_for(trained, options.data, **options.values).data
    origins = rows_of(options.data, bags.ids[index].tolist(), settings)
    with BagProgress("explaining", bags.sizes[index], console=console) as progress:
        more: dict[str, Any] = {"origins": origins, "on_bag": lambda bag: progress.update(index.index(bag))}
        entries = explaining.explain_bags(trained, bags, index, folder, options=chosen, **more)
    for line in (line for entry in entries for line in bag_lines(entry, most=1)):
        say(line)
    tell_left_out(bags, folder / PAGE, stdout_console())
    note_result(page=folder / PAGE, bags=entries)
    say(f"{plural(len(entries), 'bag')} explained: {folder / PAGE}")
    return 0
