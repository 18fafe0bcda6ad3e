"""Explain bags with a trained run: choose the bags, write their files, and continue a stopped call."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.digests import bag_digests, facts_of
from midam.errors import BagDataError, MidamError, RunExistsError, RunStoppedError, nearest
from midam.evaluate.predict import predict, prepared
from midam.explain.calls import bag_facts, explained_columns
from midam.explain.explanation import Explanation, Features, Origins, explain_bag
from midam.explain.geojson import geojson_text, slide_names
from midam.explain.maps import ImageFolder, maps_of
from midam.explain.page import instance_row, instances_csv, page_texts
from midam.explain.patches import warn_of_unknown
from midam.explain.picture import Pictures, draw_explanation
from midam.explain.raw import RawFiles
from midam.files import require_plain_folder, sweep, write_json, write_text
from midam.names import name_of
from midam.reading import read_text
from midam.runs.folder import RunFolder, free_folder
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
        groups.setdefault(str(bag if bags.groups is None else bags.groups[i]), []).append(i)
    positions = {"all": [*range(len(bags))]} | folders | groups | {str(bag): [i] for i, bag in enumerate(bags.ids)}
    names = [name_of(name) for name in names]
    for name in names:
        if name not in positions:
            advice = nearest(name, positions, count=3)
            kinds = "bags without groups (see --labels, --groups)" if bags.groups is None else "bags or a group of them"
            raise BagDataError(f"Expected one of {len(bags)} {kinds}, got {name!r} (in {bags.source}); {advice}")
    return list(dict.fromkeys(i for name in names for i in positions[name]))


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
        If the folder holds files, unless the same call was stopped; nothing is written then.
    RunStoppedError
        On Ctrl-C or SIGTERM; explain.json and the page hold the finished bags.
    """
    bags = prepared(run.model, bags)
    if options.label is not None:
        run.target.column(options.label)
    slides, stems, call = slide_names(bags, index), file_names(bags), _call(run, bags, index, options)
    entries, explainer = _finished(folder, call, bags, index), _Explainer(run, bags, folder, options, origins)
    new = not folder.exists()
    require_plain_folder(folder, writes=True)
    sweep(folder)
    try:
        for at, i in enumerate(index):
            if at >= len(entries):
                write_json(folder / SUMMARY, _summary(call, entries, finished=False))
                entries.append(explainer.entry(i, stems[i], slides[i]))
            if on_bag is not None:
                on_bag(i)
    except KeyboardInterrupt:
        came = f"{len(entries)} of {len(index)} bags explained (in {folder})"
        raise RunStoppedError(f"Expected all bags, got a signal: {came}; repeat the command to continue.") from None
    finally:
        # After any stop, the page shows the finished bags; no file of another bag, or of none, is left.
        left = len(index) - len(entries)
        begun = [(f"{stems[i]}.png", f"{stems[i]}.csv", *slides[i]) for i in index[len(entries) :][:1]]
        for name in chain(*begun):
            (folder / name).unlink(missing_ok=True)
        if entries:
            for name, text in page_texts(bags.source, entries, folder, left=left).items():
                write_text(folder / name, text)
            write_json(folder / SUMMARY, _summary(call, entries, finished=not left))
        else:
            (folder / SUMMARY).unlink(missing_ok=True)
            if new:
                with suppress(OSError):
                    folder.rmdir()
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


class _Explainer:
    """Writes the files of bags, one after the other."""

    def __init__(self, run: LoadedRun, bags: Bags, folder: Path, options: ExplainOptions, origins: Origins) -> None:
        self._run, self._bags, self._folder, self._options, self._origins = run, bags, folder, options, origins
        self._images = images_of(options, bags)
        self._raw = RawFiles(bags, None if options.images is None else Path(options.images))
        self._features = Features.of(run.data, run.model, bags)

    def entry(self, index: int, stem: str, slides: Sequence[str]) -> dict[str, Any]:
        """Write the files of a bag, those of its slides by the names `slides`; return its entry in explain.json."""
        run, bags, top, chunk_size = self._run, self._bags, self._options.top, self._run.settings.run.chunk_size
        files = {"picture": f"{stem}.png", "table": f"{stem}.csv"}
        column = None
        if run.target.count > 1:
            scores = predict(run.model, bags.subset([index]), chunk_size=chunk_size)
            (column,) = explained_columns(run, scores, self._options.label).tolist()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pictures = self._raw.pictures(index)
            parts = None if pictures is None else self._raw.parts(pictures, index)
            shown: dict[str, Any] = {"features": self._features, "top": top, "origins": self._origins, "parts": parts}
            explanation = explain_bag(run.model, bags, index, column=column, chunk_size=chunk_size, **shown)
            maps = maps_of(explanation, bags, self._images)
            for view in maps:
                warn_of_unknown(view.patches)
            path = self._folder / files["picture"]
            kind = draw_explanation(path, explanation, bags, maps=maps, pictures=pictures, top=top)
        polygons = {slides[view.patches.number]: view.patches for view in maps if view.patches.in_pixels}
        for name, patches in polygons.items():
            write_text(self._folder / name, geojson_text(explanation, patches))
        rows = _instances(explanation, pictures)
        listed = [*islice(rows, top)]
        ranked = (instance_row({}, rank, one) for rank, one in enumerate(chain(listed, rows), start=1))
        write_text(self._folder / files["table"], instances_csv(ranked, shown=top))
        return {
            **bag_facts(run, bags, index, np.array([explanation.score]) if column is None else scores, column or 0),
            **{"content": _content(bags, index), "instances": listed, "picture": kind},
            **{"slides": [*polygons], "files": files},
            "notes": list(dict.fromkeys(str(one.message) for one in caught)),
        }


def _instances(explanation: Explanation, pictures: Pictures | None) -> Iterator[dict[str, Any]]:
    """Yield the instances by rank; if their parts are known, with the peaks in pixels of the pictures."""
    for i in explanation.order.tolist():
        one = explanation.instance(i)
        if pictures is not None and explanation.parts:
            known, shape = explanation.parts.get(i), pictures.bag.instance_shape
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


def _finished(folder: Path, call: dict[str, Any], bags: Bags, index: Sequence[int]) -> list[dict[str, Any]]:
    """Return the entries of a stopped call; refuse a folder with other files, or with other instances."""
    existing = [path.name for path in RunFolder(folder).contents()]
    entries = _stopped(folder, call) if existing else []
    if entries is None or any(entry["content"] != _content(bags, i) for entry, i in zip(entries, index)):
        wanted = "an empty folder, or explanations of the same instances by the same call that was stopped"
        files = f"{len(existing)} other files (in {folder}, first {min(existing)})"
        raise RunExistsError(f"Expected {wanted}, got {files}; choose another folder.")
    return entries


def _content(bags: Bags, index: int) -> str:
    """Return the digest of a bag's instances."""
    return bag_digests(bags.subset([index]))[0]
