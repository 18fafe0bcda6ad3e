"""Write a run as a folder for others: config.json, a model card, weights, and programs for torch or onnxruntime.

It is made to be passed on, so ids of bags, groups and paths are left out.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from midam._version import __version__
from midam.errors import CheckpointError, ExportError, RunExistsError, nearest, need_package, path_of
from midam.evaluate.predict import covariate_kinds
from midam.export.card import card_text
from midam.export.programs import check_programs, trace, write_programs
from midam.files import write_bytes, write_json, write_text
from midam.methods.names import taken_settings
from midam.names import nearby
from midam.nn.scorer import BagEnsemble, scorers_of
from midam.nn.standardizer import Standardizer
from midam.report.pseudonyms import PATHS
from midam.runs.folder import RunFolder
from midam.runs.loaded import LoadedRun, load_run
from midam.runs.result import Result

FORMATS = ("safetensors", "torch", "onnx")
_FINE = 2.0**14


def export_run(path: str | Path, out: str | Path, *, formats: Sequence[str] = ()) -> list[str]:
    """Write a finished run to the folder `out`; returns the formats that were written.

    The folder gets README.md, a model card for the Hugging Face hub, config.json, and by format:

    - "safetensors": model.safetensors, the weights under their names in midam;
    - "torch": chunk.pt2, merge.pt2 and score.pt2, programs of `torch.export`;
    - "onnx": the same programs in onnx/chunk.onnx, merge.onnx and score.onnx.

    reader.py runs the programs, of either format, without midam. They score bags of any size in the memory of a chunk
    and predict as `midam predict` does; missing values are filled or refused as in the run
    (`midam.settings.Settings` `impute`). No bag id, patient name or path of this machine is written.

    Parameters
    ----------
    path : str or Path
        Run folder.
    out : str or Path
        New or empty folder; it appears when it is complete, or not at all.
    formats : sequence of str
        Default: all formats that can hold the run, with a warning for each other format.

    Raises
    ------
    ExportError
        If a requested format cannot hold the run, or if the run takes covariates or encodes columns.
    CheckpointError
        If there is no run, or it did not finish. A model that a classifier or a comparison saved can be exported; its
        card has no results.
    RunExistsError
        If the folder is not empty.
    MidamError
        If a package is missing (extra ``export``).
    """
    path, out = path_of(path, "a run folder"), path_of(out, "a folder")
    for name in formats:
        if name not in FORMATS:
            raise ExportError(f"Expected a format among {', '.join(FORMATS)}, got {name!r}; {nearest(name, FORMATS)}")
    folder = RunFolder(path)
    if not folder.is_saved_model() and not (folder.summary.exists() and folder.model.exists()):
        way = f"if it was stopped, finish it with `midam fit --resume {path}`."
        raise CheckpointError(f"Expected a run folder with summary.json, got {path}; {nearby(path, otherwise=way)}")
    run, summary = load_run(path), Result.read(folder).entries() if folder.summary.exists() else {}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExistsError(f"Expected a new or empty folder for the export, got {out}; choose another or empty it.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
        done = write_export(run, summary, Path(place) / "export", formats=formats)
        if out.exists():
            out.rmdir()
        (Path(place) / "export").rename(out)
    return done


def write_export(run: LoadedRun, summary: dict[str, Any], folder: Path, *, formats: Sequence[str] = ()) -> list[str]:
    """Write a loaded run as `export_run` does, directly into a folder.

    `summary` is the content of its summary.json; empty for a run that `midam fit` did not write.
    """
    refuse_covariates(run)
    config, done, programs = describe(run), [], dict[str, Any]()
    for name in formats or FORMATS:
        try:
            if name == "safetensors":
                weights = {name: value.contiguous().clone() for name, value in run.model.state_dict().items()}
                save = need_package("safetensors.torch", "to export", extra="export").save
                write_bytes(folder / "model.safetensors", save(weights, {"format": "pt"}))
            else:
                programs = programs or trace(run, config)
                _write_checked(programs, name, run, folder, config)
        except ExportError as error:
            if formats:
                raise
            warnings.warn(f"without {name}: {error}", stacklevel=3)
        else:
            done.append(name)
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", card_text(run, config, summary, done))
    return done


def _write_checked(programs: dict[str, Any], form: str, run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    """Write programs in a form, with their reader, and check them; what fails is removed."""
    for package in ("onnx", "onnxscript", "onnxruntime") if form == "onnx" else ():
        need_package(package, "to export", extra="export")
    config["programs"][form] = write_programs(programs, form, folder)
    write_json(folder / "config.json", config)
    write_bytes(folder / "reader.py", Path(__file__).with_name("reader.py").read_bytes())
    try:
        check_programs(form, run, folder, config)
    except ExportError:
        for name in config["programs"].pop(form):
            (folder / name).unlink()
        raise


def describe(run: LoadedRun) -> dict[str, Any]:
    """Return the content of config.json: what `reader.py` needs, and decision, data and settings of a run."""
    settings = run.settings.flat() if run.method is None else taken_settings(run.settings)
    data, imputed = run.data, run.data.get("imputed")
    # Only the last part of a path on the training machine is kept.
    settings |= {name: Path(settings[name]).name for name in PATHS if settings.get(name) is not None}
    shape = list(data["instance_shape"])
    target, columns = run.target, dict.fromkeys(run.target.score_columns)
    if run.decision is not None:
        names, some = list(target.predicted_names), np.full((1, target.count), 0.5)
        row = target.predictions(some if target.count > 1 else some[0], run.decision)
        columns |= {name: None if isinstance(x, float | None) else names for name, [x] in row.items()}
    return {
        "model_type": "midam",
        "midam_version": __version__,
        "digest": run.digest(),
        **({} if run.method is None else {"method": run.method}),
        "target": target.name,
        "names": list(target.names),
        "decision": None if run.decision is None else run.decision.to_dict(),
        "programs": {},
        "instance_shape": shape,
        # Tables are read in float64; most images are exact in float32.
        "dtype": "float64" if len(shape) == 1 or _is_fine(run.model) else "float32",
        "chunk_size": run.settings.run.chunk_size,
        # What the programs return, with the names where it is the position of a name.
        "columns": columns,
        "data": {
            "name": Path(data["source"]).name,
            "fingerprint": data["fingerprint"],
            "feature_names": data["feature_names"],
            "classes": data.get("classes"),
            "cut": data.get("cut"),
            # Values that replace missing ones, in the shape of an instance.
            "imputed": None if imputed is None else {key: imputed[key] for key in ("how", "values")},
        },
        "settings": settings,
    }


def refuse_covariates(run: LoadedRun) -> None:
    """Raise an `ExportError` for a run with covariates or encoded columns, which no format can hold."""
    coded = [] if run.columns is None else [n for n, kind in run.columns.kinds.items() if kind != "number"] or ["gaps"]
    if names := [*covariate_kinds(run.model), *coded]:
        raise ExportError(
            "Expected a model of numeric features to export, got one that takes covariates or encodes columns: "
            f"{', '.join(names)}; score bags with `midam predict`, or train without them."
        )


def _is_fine(model: BagEnsemble) -> bool:
    """Return whether any feature varies too little for the resolution of float32 at its mean."""
    known = [scorer.standardizer for scorer in scorers_of(model) if isinstance(scorer.standardizer, Standardizer)]
    return any(bool((one.center.abs() > _FINE * one.scale).any()) for one in known)
