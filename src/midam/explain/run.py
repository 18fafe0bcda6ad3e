"""Explain bags with a trained run: choose the bags, write their files, and continue a stopped call."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.digests import bag_digests, facts_of
from midam.data.sources.file_rows import files_of
from midam.errors import BagDataError, MidamError, RunExistsError, RunStoppedError, check_each, nearest
from midam.evaluate.predict import predict, prepared
from midam.explain.calls import bag_facts, explained_columns
from midam.explain.explanation import Explanation, Features, Origins, explain_bag, known_columns, named
from midam.explain.geojson import geojson_text, slide_names
from midam.explain.maps import ImageFolder, map_of, placed_patches
from midam.explain.page import PAGE, instance_row, instances_csv, page_names, page_texts
from midam.explain.patches import warn_of_unknown
from midam.explain.picture import draw_explanation
from midam.explain.raw import RawFiles
from midam.explain.words import named_values
from midam.files import require_plain_folder, sweep, write_json, write_text
from midam.names import name_of
from midam.reading import read_text
from midam.runs.folder import free_folder
from midam.runs.instance_files import file_names
from midam.runs.loaded import LoadedRun

SUMMARY = "explain.json"
_FOLDER = "explain"
OnBags = Callable[[Sequence[int]], None]


@dataclass(frozen=True)
class ExplainOptions:
    """Files to write for each bag.

    Parameters
    ----------
    top : int
        Instances that are shown individually, >= 1.
    images : str, optional
        Folder with images of slides for bags of features, see `midam.explain.maps.ImageFolder`, or with the raw
        files of bags that were embedded, see `midam.explain.raw.RawFiles`.
    label : str, optional
        Class or label to explain if the run has several; default: the most probable one of each bag.

    Examples
    --------
    >>> ExplainOptions(top=3)
    ExplainOptions(top=3, images=None, label=None)
    """

    top: int = 8
    images: str | None = None
    label: str | None = None


def find_bags(bags: Bags, names: Sequence[str]) -> list[int]:
    """Return positions of bags by their ids, or by groups or folders that hold them, each once.

    "all" names all bags, unless it is the name of one. An unknown name is refused.
    """
    folders, groups = dict[str, list[int]](), dict[str, list[int]]()
    for i, bag in enumerate(bags.ids.tolist()):
        for folder in accumulate(bag.split("/")[:-1], "{}/{}".format):
            folders.setdefault(folder, []).append(i)
        groups.setdefault(_patient(bags, i), []).append(i)
    positions = {"all": [*range(len(bags))]} | folders | groups | {str(bag): [i] for i, bag in enumerate(bags.ids)}
    names = [name_of(name) for name in names]

    def check(name: str) -> None:
        if name not in positions:
            advice = nearest(name, positions, count=3)
            kinds = "bags without groups (see --labels, --groups)" if bags.groups is None else "bags or a group of them"
            raise BagDataError(f"Expected one of {len(bags)} {kinds}, got {name!r} (in {bags.source}); {advice}")

    check_each(names, check)
    return list(dict.fromkeys(i for name in names for i in positions[name]))


def _patient(bags: Bags, index: int) -> str:
    """Return the group of a bag; without groups, the bag itself."""
    return str(bags.ids[index] if bags.groups is None else bags.groups[index])


def own_test_bags(run: LoadedRun, bags: Bags) -> list[int]:
    """Return positions of the run's test bags, recognized by their content."""
    bags = prepared(run.model, bags)
    return [i for i, split in enumerate(run.known_splits(bags)) if split == "test"]


def extreme_bags(
    run: LoadedRun, bags: Bags, among: Sequence[int], *, label: str | None = None, on_bags: OnBags | None = None
) -> list[int]:
    """Return positions of the bags with the highest and the lowest score in `among`; one if both are the same.

    With several classes or labels, the score is that of `label`, or of the most probable class of each bag.
    `on_bags` is called with indices into `among` of scored bags.
    """
    scores = predict(run.model, bags.subset(among), chunk_size=run.settings.run.chunk_size, on_bags=on_bags)
    if scores.ndim == 2:
        scores = scores[np.arange(len(scores)), explained_columns(run, scores, label)]
    return list(dict.fromkeys([among[int(scores.argmax())], among[int(scores.argmin())]]))


def images_of(options: ExplainOptions, bags: Bags) -> ImageFolder | None:
    """Return the folder of images in the options; None for scans, whose raw files may lie there."""
    if options.images is None or ("slice_size" in (bags.cut or {}) and Path(options.images).is_dir()):
        return None
    return ImageFolder(Path(options.images), bags)


def own_folder(run_folder: Path, run: LoadedRun, bags: Bags, index: Sequence[int], options: ExplainOptions) -> Path:
    """Return the folder inside the run folder in which the same call was stopped, or a new one."""
    call = _call(run, bags, index, options)
    for file in sorted(run_folder.glob(f"{_FOLDER}*/{SUMMARY}")):
        if not file.parent.is_symlink() and _stopped(file.parent, call) is not None:
            return file.parent
    return free_folder(run_folder, _FOLDER).root


def explain_bags(
    run: LoadedRun,
    bags: Bags,
    index: Sequence[int],
    folder: Path,
    *,
    options: ExplainOptions,
    origins: Origins = MappingProxyType({}),
    on_bag: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Explain bags: write a picture, a table and, for coordinates in pixels, GeoJSON of each, and a page of all.

    If a bag has several slides, each has its map and GeoJSON. Warnings at the end name bags that could not be drawn,
    one for each reason.

    If the same call was stopped before, it continues: finished bags are kept, the others are written again.

    Parameters
    ----------
    run, bags : LoadedRun, Bags
        The run with its model, and the bags.
    index, folder : sequence of int, Path
        Positions of the bags to explain, and the folder for their files, which is made if missing.
    options : ExplainOptions
        Files to write.
    origins : mapping
        Columns of the instances by bag, see `midam.data.sources.inputs.rows_of`.
    on_bag : callable, optional
        Called with the position of each finished bag.

    Returns
    -------
    list of dict
        An entry for each bag, as in explain.json.

    Raises
    ------
    ConfigError
        If `options.label` is not a class of the run.
    RunExistsError
        If one of the files exists, unless the same call was stopped; nothing is written then.
    RunStoppedError
        On Ctrl-C or SIGTERM; explain.json and the page hold the finished bags.
    """
    bags, images = prepared(run.model, bags), images_of(options, bags)
    raw = RawFiles(bags, None if options.images is None else Path(options.images))
    if options.label is not None:
        run.target.column(options.label)
    slides, stems = slide_names(bags, index), file_names(bags)
    written = {i: {"picture": f"{stems[i]}.png", "table": f"{stems[i]}.csv"} for i in index}
    call, names = _call(run, bags, index, options), [name for i in index for name in (*written[i].values(), *slides[i])]
    pages = {} if bags.groups is None else page_names([_patient(bags, i) for i in index])
    entries = _known(folder, call, bags, index, [*names, SUMMARY, PAGE, "index.left-out.csv", *pages.values()])
    require_plain_folder(folder, writes=True)
    sweep(folder)
    try:
        for at, i in enumerate(index):
            if at >= len(entries):
                write_json(folder / SUMMARY, _summary(call, entries, finished=False))
                given: dict[str, Any] = {"options": options, "images": images, "raw": raw, "origins": origins}
                entries.append(_explain(run, bags, i, folder, files=written[i], slides=slides[i], **given))
            if on_bag is not None:
                on_bag(i)
    except KeyboardInterrupt:
        came = f"{len(entries)} of {len(index)} bags explained (in {folder})"
        raise RunStoppedError(f"Expected all bags, got a signal: {came}; repeat the command to continue.") from None
    finally:
        # After any stop, the page shows the finished bags.
        left = len(index) - len(entries)
        for name, text in page_texts(bags.source, entries, folder, pages, left=left).items():
            write_text(folder / name, text)
        write_json(folder / SUMMARY, _summary(call, entries, finished=not left))
    for line in note_lines(entries):
        warnings.warn(line, stacklevel=2)
    return entries


def note_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each reason why bags could not be drawn, with the number of bags and the first bag.

    Examples
    --------
    >>> note_lines([{"bag": "a", "notes": ["no map (1 file)"]}, {"bag": "b", "notes": ["no map (2 files)"]}])
    ['no map (1 file); 2 of 2 bags, the first a']
    """
    by_reason: dict[str, dict[str, str]] = {}
    for entry in entries:
        for note in entry["notes"]:
            by_reason.setdefault(note.partition(" (")[0], {}).setdefault(entry["bag"], note)
    lines = []
    for notes in by_reason.values():
        bag, note = next(iter(notes.items()))
        lines.append(f"{note}; {len(notes)} of {len(entries)} bags, the first {bag}")
    return lines


def _explain(
    run: LoadedRun,
    bags: Bags,
    index: int,
    folder: Path,
    *,
    files: Mapping[str, str],
    slides: Sequence[str],
    options: ExplainOptions,
    images: ImageFolder | None,
    raw: RawFiles,
    origins: Origins,
) -> dict[str, Any]:
    """Write the files of a bag, those of its slides by the names `slides`; returns its entry in explain.json."""
    bag, chunk_size, column = bags.subset([index]), run.settings.run.chunk_size, None
    if run.target.count > 1:
        scores = predict(run.model, bag, chunk_size=chunk_size)
        (column,) = explained_columns(run, scores, options.label).tolist()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pictures = raw.pictures(index)
        given: dict[str, Any] = {"features": Features.of(run.data, run.model, bags), "top": options.top}
        given["parts"] = None if pictures is None else raw.parts(pictures, index)
        explanation = explain_bag(run.model, bags, index, column=column, chunk_size=chunk_size, **given)
        explanation = replace(explanation, columns=known_columns(bags, index, origins))
        patches = placed_patches(explanation, bags, images)
        maps = [map_of(explanation, bags, slide, images) for slide in patches]
        for slide in patches:
            warn_of_unknown(slide)
        shown: dict[str, Any] = {"top": options.top, "pictures": pictures, "drawn": [*filter(None, maps)]}
        picture = draw_explanation(folder / files["picture"], explanation, bags, **shown)
    shape = None if pictures is None or not explanation.parts else pictures.bags.instance_shape
    rows = _instances(explanation, shape)
    listed = [next(rows) for _ in range(min(options.top, len(explanation)))]
    polygons, known = list[str](), files_of(bags, index)
    for slide in (slide for slide in patches if slide.in_pixels):
        polygons.append(slides[0 if slide.file is None or len(slides) < 2 else known.index(slide.file)])
        write_text(folder / polygons[-1], geojson_text(explanation, slide))
    top = [instance_row({}, rank, one) for rank, one in enumerate(listed, start=1)]
    rest = (instance_row({}, rank, one) for rank, one in enumerate(rows, start=len(top) + 1))
    write_text(folder / files["table"], instances_csv(top, rest))
    scores = np.array([explanation.score]) if column is None else scores
    return {
        **bag_facts(run, bag, scores, explained_columns(run, scores, options.label))(0),
        **{"index": index, "score": explanation.score, "label": _label(bag), "content": _content(bags, index)},
        **{"instances": listed, "picture": picture, "slides": polygons, "files": dict(files)},
        "notes": list(dict.fromkeys(str(one.message) for one in caught)),
    }


def _label(bag: Bags) -> str | int | None:
    """Return the label of a bag; in words if it is more than one class."""
    if bag.outcome is None:
        return None if bag.labels is None else int(bag.labels[0])
    values = {name: values[0] for name, values in bag.outcome.columns().items()}
    if bag.outcome.target == "multilabel":
        return ", ".join(name for name, value in zip(bag.outcome.names, values.values()) if value == 1) or "none"
    return named_values(values).removeprefix("label ")


def _instances(explanation: Explanation, shape: tuple[int, ...] | None) -> Iterator[dict[str, Any]]:
    """Yield the instances by rank; with the `shape` of their pictures, also the peak of their parts in pixels."""
    relative = explanation.relative_weight
    for i in explanation.order.tolist():
        one = named(i, explanation.coords, explanation.columns) | {
            "contribution": float(explanation.contribution[i]),
            "score": float(explanation.instances.score[i]),
            "weight": float(explanation.instances.weight[i]),
            "relative_weight": float(relative[i]),
            "features": [feature._asdict() for feature in explanation.features.get(i, ())],
        }
        if shape is not None:
            known = explanation.parts.get(i)
            for axis, name in enumerate(("peak_x", "peak_y")):
                one[name] = None if known is None else round(known.peak[axis] * shape[-1 - axis] - 0.5, 1)
        yield one


def _call(run: LoadedRun, bags: Bags, index: Sequence[int], options: ExplainOptions) -> dict[str, Any]:
    """Return what identifies a call: model, calibration, options, and what is known of the bags but their content."""
    known = json.dumps(facts_of(bags.subset(index), [])).encode()
    of_bags = {"wanted": [str(bags.ids[i]) for i in index], "bags_known": hashlib.sha256(known).hexdigest()}
    return {"run": run.digest(), "options": asdict(options), **of_bags}


def _summary(call: dict[str, Any], entries: Sequence[dict[str, Any]], *, finished: bool) -> dict[str, Any]:
    """Return the content of explain.json, with a digest of the entries, which a repeated call takes from it."""
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()
    return {**call, "finished": finished, "bags": entries, "digest": digest}


def _stopped(folder: Path, call: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the entries that the same call had finished in a folder when it was stopped; None for any other folder."""
    with suppress(MidamError, OSError, ValueError, RecursionError, TypeError, KeyError):
        known = json.loads(read_text(folder / SUMMARY))
        entries: list[dict[str, Any]] = known["bags"]
        return entries if known == _summary(call, entries, finished=False) else None
    return None


def _known(
    folder: Path, call: dict[str, Any], bags: Bags, index: Sequence[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the entries of a stopped call; refuse a folder with files of other calls, or of other instances."""
    existing = [name for name in names if (folder / name).exists()]
    entries = _stopped(folder, call) if existing else []
    if entries is None or any(entry["content"] != _content(bags, i) for entry, i in zip(entries, index)):
        wanted = "without explanations of these bags, or those of the same instances by the same call that was stopped"
        files = f"{len(existing)} other files (in {folder}, first {existing[0]})"
        raise RunExistsError(f"Expected a folder {wanted}, got {files}; choose another folder.")
    return entries


def _content(bags: Bags, index: int) -> str:
    """Return the digest of a bag's instances."""
    return bag_digests(bags.subset([index]))[0]
