"""`midam embed`: pass each image, patch or slice once through a frozen network, and write the vectors to a store."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from midam.cli.data import UNLABELED, read_bags_of, tell_store
from midam.cli.outputs import keep_folder
from midam.cli.parser import DATA, Options, Parser
from midam.data.left_out import WHEN_MADE
from midam.errors import ConfigError
from midam.methods.names import DEFAULT, choose_method, is_shorthand
from midam.processes import LEADER, Processes
from midam.registry import BASELINES, FINE_TUNED, NETWORKS
from midam.report.program import note_result
from midam.runs.folder import RunFolder
from midam.settings import Settings
from midam.settings.group import AUTO

if TYPE_CHECKING:
    from midam.data.bags import Bags

_TEXT = """Turn images, patches or slices into vectors by a frozen, pretrained network, once, and keep them in a store,
on which training takes seconds. To continue a stopped call, repeat the command. A run on the store scores
raw files by itself: it embeds them by the recipe in the store."""
_READING = Settings.names("data", "cut")
_READ_AGAIN = {"split_file", "fold", "covariates"}  # settings that a run applies when it reads the vectors


def parser() -> Parser:
    """Return the parser of the command."""
    embed = Parser("embed", _TEXT)
    embed.add_argument("data", help=DATA)
    names = f"{', '.join(NETWORKS.names())}, or an encoder of a plug-in; hf: takes a name"
    embed.add_argument("--encoder", default="efficientnet-lite0", metavar="NAME", help=f"network: {names}")
    embed.add_argument("--out", required=True, metavar="STORE", help="folder to write")
    text = "side of the square to which patches or slices are resized; default: the network's size"
    embed.add_argument("--size", type=int, metavar="PIXELS", help=text)
    text = "type of the vectors in the store (default: float16)"
    embed.add_argument("--dtype", choices=["float16", "float32"], default="float16", help=text)
    embed.add_argument("--unlabeled", action="store_true", help=UNLABELED)
    embed.add_settings((*_READING, "accelerator"))
    return embed


def embed_first(options: Options, console: Console) -> None:
    """Embed the data of `midam fit` if the encoder is a network, or if data of this kind are embedded by default.

    The options then name the store of vectors as the data. The store is in the folder `vectors` next to the run; a
    later run on the same files reuses it.
    """
    if options.data is None or options.resume is not None:
        return
    settings = options.settings()
    if settings.model.encoder == FINE_TUNED:
        _cut_for_training(options, settings, console)
        return
    method = DEFAULT if options.method is None else options.method
    if not (options.network or method in (DEFAULT, AUTO) or is_shorthand(method)):
        return  # a baseline uses the pixels, unless the user names a network
    name, line = (options.network, "") if options.network else _usual_network(options, settings)
    if not name:
        if line:
            console.print(escape(f"note: {line}"))
        return
    if _started_together(options):
        raise ConfigError(
            f"Expected one process, which starts the others, with --encoder {name}, which embeds the data first, got "
            "several that were started together; embed it by `midam embed`, and train on its store."
        )
    _require_vectors_do(options.method, settings, name)
    keep_folder(options, "out")
    if options.out is not None and LEADER not in os.environ:
        RunFolder(Path(options.out)).require_free()
    console.quiet = console.quiet or LEADER in os.environ  # the leading process has printed the same lines
    _embed_first(options, settings, name, line, console)


def _cut_for_training(options: Options, settings: Settings, console: Console) -> None:
    """Set the patch size for a network that is fine-tuned, if the user chose none."""
    from midam.imaging.networks import load_network
    from midam.imaging.pixels import USUAL_NETWORK, fitting_patch

    name = settings.model.encoder_args.get("network", USUAL_NETWORK)
    patch = fitting_patch(options.data, settings.cut, load_network(name), trained=True)
    options.values["patch_size"] = patch
    if patch != settings.cut.patch_size:
        console.print(f"patches of {patch} x {patch} pixels, the least that {name} takes; --patch-size sets another")


def _usual_network(options: Options, settings: Settings) -> tuple[str, str]:
    """Return the network that embeds the data by default, and a note; "" for none, as with torchrun."""
    if not Path(options.data).is_dir():
        return "", ""
    from midam.imaging.pixels import usual_network

    return ("", "") if _started_together(options) else usual_network(options.data, settings)


def _started_together(options: Options) -> bool:
    """Return whether torchrun started this process with others, which would all embed at once."""
    return Processes.launched(options.devices).started_by_others and LEADER not in os.environ


def _embed_first(options: Options, settings: Settings, encoder: str, line: str, console: Console) -> None:
    from midam.imaging.embedding import cached_store, described, make_recipe
    from midam.imaging.networks import load_network
    from midam.imaging.pixels import fitting_patch
    from midam.report.terminal import BagProgress

    network, data = load_network(encoder), settings.data
    patch = fitting_patch(options.data, settings.cut, network)
    reading = settings.replace(patch_size=patch)
    if data.split_file is not None and data.split is None:
        reading = reading.replace(split_file=None, fold=None)  # the runs of all folds share the vectors
    bags = read_bags_of(options.data, reading, network=network)
    recipe = make_recipe(bags, network)
    _require_trainable(bags, options, settings, network.width)
    console.print(escape(f"{described(recipe)}{f'; {line}' if line else ''}"))
    folder = (Path("runs") if options.out is None else Path(options.out).parent) / "vectors"
    with BagProgress("embedding", bags.sizes, console=console) as progress:
        name = Path(options.data).absolute().stem
        store, is_new = cached_store(
            bags, network, recipe, folder, name=name, accelerator=settings.run.accelerator, on_bag=progress.update
        )
    warnings.filterwarnings("ignore", f".* {WHEN_MADE}")  # the same warning was shown when the images were read
    console.print(escape(f"{'vectors' if is_new else 'vectors of an earlier run'}: {store}"))
    options.named, options.data, options.network = options.data, str(store), None
    done = set(_READING) - _READ_AGAIN
    options.values = {name: value for name, value in options.values.items() if name not in done}


def _require_vectors_do(method: str | None, settings: Settings, encoder: str) -> None:
    """Refuse an unknown method, and a method that needs pixels, before anything is embedded."""
    _, baseline = choose_method(method, settings)
    if baseline is not None and BASELINES.find(baseline).pixels:
        raise ConfigError(
            f"Expected a method for vectors with --encoder {encoder}, got {baseline}, which looks at the pixels; leave "
            "out --encoder, or name another method."
        )


def _require_trainable(bags: "Bags", options: Options, settings: Settings, width: int) -> None:
    """Refuse labels, splits and settings that training would refuse, before the slow embedding."""
    from midam.data.sources import split_bags
    from midam.data.sources.request import Request
    from midam.runs.data import divided
    from midam.targets import target_of
    from midam.train.members import with_objective

    data = settings.data
    table = Request(options.data, split_file=data.split_file, fold=data.fold, groups=data.groups, missing=data.missing)
    with warnings.catch_warnings(action="ignore"):  # training repeats them
        divided(split_bags(bags, table), settings, at_once=True)
    method, baseline = choose_method(options.method, settings)
    if baseline is None:
        with_objective(method, target_of(bags)).resolve((width,))


def run(options: Options, console: Console) -> int:
    """Embed data; returns the exit code."""
    from midam.data.store import require_free
    from midam.imaging.embedding import described, embed_bags, make_recipe
    from midam.imaging.networks import load_network
    from midam.imaging.pixels import fitting_patch
    from midam.report.terminal import BagProgress

    require_free(options.out)
    keep_folder(options, "out")
    network = load_network(options.encoder)
    settings = options.settings()
    settings = settings.replace(patch_size=fitting_patch(options.data, settings.cut, network))
    bags = read_bags_of(options.data, settings, unlabeled=options.unlabeled, network=network)
    embedding = {"dtype": options.dtype, "size": options.size, "accelerator": settings.run.accelerator}
    console.print(escape(described(make_recipe(bags, network, dtype=options.dtype, size=options.size))))
    with BagProgress("embedding", bags.sizes, console=console) as progress:
        vectors = embed_bags(bags, network, options.out, on_bag=progress.update, **embedding)
    note_result(store=options.out, bags=len(vectors), vectors=vectors.num_instances, width=network.width)
    tell_store(options.out, vectors, f"vectors of {network.width}")
    return 0
