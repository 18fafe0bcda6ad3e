"""`midam explain`: show which instances decided the score of a bag."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from midam.cli.data import MASKS, with_masks
from midam.cli.outputs import keep_folder, keep_sources, tell_left_out
from midam.cli.parser import Options, Parser
from midam.cli.predict import add_inputs, read_inputs
from midam.data.bags import Bags
from midam.data.sources.inputs import rows_of
from midam.errors import ConfigError, plural, require_counts
from midam.report.program import note_result, say, stdout_console


def parser() -> Parser:
    """Return the parser of the command."""
    text = "Show which instances decided the score of a bag: pictures, HDF5 and GeoJSON."
    explain = Parser("explain", text)
    add_inputs(explain)
    text = "bags, groups (patients) or all; default: highest and lowest score (of the run's data: test bags)"
    explain.add_argument("--bags", nargs="+", default=[], metavar="ID", help=text)
    text = "class or label whose score is explained, if the run has several; default: the most probable of each bag"
    explain.add_text("--class", metavar="NAME", help=text)
    explain.add_argument("--top", type=int, default=8, metavar="N", help="instances shown one by one (default: 8)")
    explain.add_argument("--all", action="store_true", help="GeoJSON of up to 100000 patches instead of the top 1000")
    text = "folder with the slides of feature files, named like the bags (slide files, PNG or JPEG), or moved files "
    text += "that were embedded"
    explain.add_text("--images", metavar="DIR", help=text)
    text = "level-0 pixels per pixel of such a PNG or JPEG; default: from the level-0 width in the feature files"
    explain.add_argument("--image-downsample", type=float, metavar="N", help=text)
    explain.add_text("--instance-masks", metavar="PATH", help=MASKS)
    explain.add_text("--out", metavar="DIR", help="folder for the files; default: explain in the run")
    return explain


def run(options: Options, console: Console) -> int:
    """Explain bags; returns the exit code."""
    from midam.explain import run as explaining
    from midam.explain.page import PAGE
    from midam.report.terminal import BagProgress
    from midam.runs.apply import settings_for

    require_counts(top=options.top)
    if options.image_downsample is not None and (options.images is None or not options.image_downsample >= 1):
        got = f"{options.image_downsample:g}" + ("" if options.images else " without --images")
        raise ConfigError(f"Expected --image-downsample >= 1 with --images, got {got}; give pixels of level 0 for one.")
    keep_folder(options, "out")

    def wanted(bags: Bags) -> Sequence[int]:
        keep_sources(bags, options.out, "--out", folder=True)
        return sorted(explaining.find_bags(bags, options.bags)) or range(len(bags))

    trained, bags = read_inputs(options, console, chosen=wanted)
    bags = with_masks(bags, options)
    label, out = getattr(options, "class"), stdout_console()
    if label is not None:
        trained.target.column(label)
    chosen = explaining.ExplainOptions(options.top, options.all, options.images, options.image_downsample, label)
    explaining.images_of(chosen, bags)
    index = explaining.find_bags(bags, options.bags)
    if not index:
        test = explaining.own_test_bags(trained, bags)
        among = test or range(len(bags))
        with BagProgress("scoring", bags.sizes[among], console=console) as progress:
            index = explaining.extreme_bags(trained, bags, among, label=label, on_bags=progress.update_all)
        candidates = plural(len(among), "test bag" if test else "bag") + (" of the run" if test else "")
        candidates += ", each by its most probable class" if label is None and trained.target.count > 1 else ""
        candidates += f"; {plural(len(bags) - len(test), 'other bag')} left out" if len(among) < len(bags) else ""
        out.print(f"the highest and the lowest scored of the {candidates}; name others with --bags")
    call = (trained, bags, index)
    folder = Path(options.out) if options.out else explaining.own_folder(Path(options.run), *call, chosen)
    settings = settings_for(trained, options.data, **options.values).data
    origins = rows_of(options.data, bags.ids[index].tolist(), settings)
    with BagProgress("explaining", bags.sizes[index], console=console) as progress:
        more: dict[str, Any] = {"origins": origins, "on_bag": lambda bag: progress.update(index.index(bag))}
        entries = explaining.explain_bags(*call, folder, options=chosen, **more)
    for entry in entries:
        _print_bag(out, entry)
    tell_left_out(bags, folder / PAGE, out)
    note_result(page=folder / PAGE, bags=entries)
    say(f"{len(entries)} bag{'s' * (len(entries) != 1)} explained: {folder / PAGE}")
    return 0


def _print_bag(console: Console, entry: dict[str, Any]) -> None:
    from midam.explain.words import facts_text, feature_text, instance_text

    best = entry["instances"][0]
    console.print(f"[bold]{escape(entry['bag'])}[/]: {escape(facts_text(entry))}")
    weight = f"weight {best['relative_weight']:.3g} x uniform, score {best['score']:.4f}"
    console.print(f"  {escape(instance_text(best))}: adds {best['contribution']:+.3g} to the score; {weight}")
    for feature in best.get("features", ())[:3]:
        console.print(f"    its {escape(feature_text(feature))}, adds {feature['adds']:+.3g}")
    slides, polygons = entry["slides"], sum(slide["polygons"] for slide in entry["slides"])
    if 0 < polygons < entry["size"]:
        on = f", on {len(slides)} slides" if len(slides) > 1 else ""
        console.print(f"  GeoJSON of the {polygons} top patches of {entry['size']}{on}")
