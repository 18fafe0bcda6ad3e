"""Write a run as a folder for others: weights, config.json, a model card, ONNX, and a Python file for torch alone."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from midam._version import __version__
from midam.errors import CheckpointError, ExportError, RunExistsError, check_each, nearest, need_package, path_of
from midam.evaluate.predict import covariate_kinds
from midam.export.card import card_text
from midam.files import held, write_bytes, write_json, write_text
from midam.names import nearby
from midam.nn.encoders import MLP, Encoder, ResNet20
from midam.nn.ensemble import BagEnsemble, scorers_of, weights_of
from midam.nn.pooling import Pooling
from midam.nn.pooling.rescaled import RescaledPooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.plain_files import remove_own
from midam.report.pseudonyms import PATHS
from midam.runs.folder import RunFolder
from midam.runs.forms import read_summary
from midam.runs.loaded import LoadedRun, load_run
from midam.runs.method import taken_settings

_HERE = Path(__file__).parent
_PART = ("# score_onnx.py of an export holds a copy of this part.\n", "# The part ends here.\n")
_IMPORTS = """import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
"""
_FINE = 2.0**14
_NUMBERS = ("squash", "temperature", "exponent")
_ENCODERS: dict[type, str] = {MLP: "mlp", ResNet20: "resnet20"}


def export_run(
    path: str | Path, out: str | Path, *, formats: Sequence[str] = (), license: str | None = None
) -> list[str]:
    """Write a finished run to the folder `out`; returns the formats that were written.

    The folder gets README.md, a model card for the Hugging Face hub, config.json, and by format:

    - "safetensors": model.safetensors, the weights under their names in midam;
    - "python": score_bags.py, which scores bags with torch alone, and the weights next to it;
    - "onnx": onnx/chunk.onnx, merge.onnx and score.onnx, which score_onnx.py runs in onnxruntime.

    The Python files score bags of any size in the memory of a chunk, average the members, and fill or refuse missing
    values as the run does (`midam.settings.Settings` `impute`). No bag id, patient name or path of this machine is
    written.

    Parameters
    ----------
    path : str or Path
        Run folder.
    out : str or Path
        New or empty folder; it appears when it is complete, or not at all.
    formats : sequence of str
        Default: all formats that can hold the run, with a warning for each other format.
    license : str, optional
        Identifier of the license of the model, such as "mit" or "cc-by-nc-4.0", for the card.

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
    check_each(formats, _check_format)
    has_summary = _has_summary(path)
    run = load_run(path)
    summary = read_summary(RunFolder(path))[0] if has_summary else {}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExistsError(f"Expected a new or empty folder for the export, got {out}; choose another or empty it.")
    part = out.with_name(f"{out.name}.part")
    with held(
        out.with_name(f"{out.name}.export"),
        busy=RunExistsError(f"Expected one export to {out} at a time, got two; wait for the first."),
    ):
        remove_own(part)  # left by a killed call
        try:
            done = write_export(run, summary, part, formats=formats, license=license)
            if out.exists():
                out.rmdir()
            part.rename(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return done


def write_export(
    run: LoadedRun, summary: dict[str, Any], folder: Path, *, formats: Sequence[str] = (), license: str | None = None
) -> list[str]:
    """Write a loaded run as `export_run` does, directly into a folder.

    `summary` is the content of its summary.json; empty for a run that `midam fit` did not write.
    """
    refuse_covariates(run)
    config, done = describe(run), []
    for name in formats or FORMATS:
        try:
            FORMATS[name](run, folder, config)
        except ExportError as error:
            if formats:
                raise
            warnings.warn(f"without {name}: {error}", stacklevel=3)
        else:
            done.append(name)
    if "onnx" not in done:
        del config["onnx"]
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", card_text(run, config, summary, done, license=license))
    return done


def _safetensors(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    save = _need("safetensors.torch").save
    weights = {name: value.contiguous().clone() for name, value in run.model.state_dict().items()}
    known = {"format": "pt", "digest": config["digest"]}
    if config["data"]["imputed"] is not None:
        known["imputed"] = json.dumps(config["data"]["imputed"])
    content = save(weights, metadata=known)
    size = int.from_bytes(content[:8], "little")
    # safetensors orders its metadata at random.
    head = json.loads(content[8 : 8 + size]) | {"__metadata__": known}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    content = content[:8] + text + content[8 + size :]
    config["weights_sha256"] = hashlib.sha256(content).hexdigest()
    write_bytes(folder / "model.safetensors", content)


def _python(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    require_plain(run)
    if not (folder / "model.safetensors").exists():
        _safetensors(run, folder, config)
    write_bytes(folder / "score_bags.py", (_HERE / "score_bags.py").read_bytes())


def _onnx(run: LoadedRun, folder: Path, config: dict[str, Any]) -> None:
    require_trained(run, "ONNX")
    for package in ("onnx", "onnxscript", "onnxruntime"):
        _need(package)
    try:
        import_module("midam.export.onnx").write_onnx(run, folder / "onnx", config)
    except BaseException:
        shutil.rmtree(folder / "onnx", ignore_errors=True)
        raise
    write_text(folder / "score_onnx.py", _onnx_script())


def _onnx_script() -> str:
    """Return the text of score_onnx.py with the shared part of score_bags.py, so that it needs no other file."""
    script, python = ((_HERE / name).read_text(encoding="utf-8") for name in ("score_onnx.py", "score_bags.py"))
    shared = python.partition(_PART[0])[2].partition(_PART[1])[0].strip()
    return script.replace("from midam.export.score_bags import Scorer, plain_file\n", f"{_IMPORTS}\n{shared}\n")


def _need(module: str) -> Any:
    return need_package(module, "to export", extra="export")


def _check_format(name: str) -> None:
    if name not in FORMATS:
        raise ExportError(f"Expected a format among {', '.join(FORMATS)}, got {name!r}; {nearest(name, FORMATS)}")


def _has_summary(path: Path) -> bool:
    """Return whether a run has a summary.json; raise a `CheckpointError` if it must have one."""
    folder = RunFolder(path)
    if folder.model.exists() and not folder.summary.exists() and not folder.last.exists():
        return False
    if folder.config.exists() and not (folder.summary.exists() and folder.model.exists()):
        raise CheckpointError(
            f"Expected a finished run, got one that was stopped (in {path}); finish it with `midam fit --resume "
            f"{path}`."
        )
    if not folder.summary.exists():
        raise CheckpointError(f"Expected a run folder with summary.json, got {path}; {nearby(path)}")
    return True


FORMATS: dict[str, Callable[[LoadedRun, Path, dict[str, Any]], None]] = {
    "safetensors": _safetensors,
    "python": _python,
    "onnx": _onnx,
}


def describe(run: LoadedRun) -> dict[str, Any]:
    """Return the content of config.json: architecture, calibration, data and settings of a run."""
    settings = run.settings.flat() if run.method is None else taken_settings(run.settings)
    data, imputed = run.data, run.data.get("imputed")
    # Only the last part of a path on the training machine is kept.
    settings |= {name: Path(settings[name]).name for name in PATHS if settings.get(name) is not None}
    shape = list(data["instance_shape"])
    return {
        "model_type": "midam",
        "midam_version": __version__,
        "digest": run.digest(),
        **({} if run.method is None else {"method": run.method}),
        "architecture": _architecture(run.model, shape),
        "chunk_size": run.settings.run.chunk_size,
        "calibration": None if run.calibrator is None else run.calibrator.to_dict(),
        "threshold": run.threshold,
        **_outcome(run),
        # Tables are read in float64; most images are exact in float32.
        "onnx": {"dtype": "float64" if len(shape) == 1 or _is_fine(run.model) else "float32"},
        "data": {
            "name": Path(data["source"]).name,
            "fingerprint": data["fingerprint"],
            "feature_names": data["feature_names"],
            "classes": data.get("classes"),
            "bag_column": run.settings.data.bag_column,
            "cut": data.get("cut"),
            # Values that replace missing ones, in the shape of an instance.
            "imputed": None if imputed is None else {key: imputed[key] for key in ("how", "values")},
        },
        "settings": settings,
    }


def refuse_covariates(run: LoadedRun) -> None:
    """Raise an `ExportError` for a run with covariates or encoded columns, which no format can hold."""
    names = covariate_kinds(run.model)
    if names:
        raise ExportError(
            f"Expected a model without covariates to export, got one with {', '.join(names)}; score bags with `midam "
            "predict`, or train without `covariates`."
        )
    if run.columns is not None:
        coded = [name for name, kind in run.columns.kinds.items() if kind != "number"] or ["gaps"]
        raise ExportError(
            f"Expected a model of numeric features to export, got one that encodes {', '.join(coded)}; score bags with "
            "`midam predict`, or train without these columns."
        )


def _outcome(run: LoadedRun) -> dict[str, Any]:
    """Return target, names and decision of a model that is not binary."""
    if run.target.name == "binary":
        return {}
    return {**run.target.description, "decision": None if run.decision is None else run.decision.to_dict()}


def require_trained(run: LoadedRun, form: str) -> None:
    """Refuse a run that `form` cannot hold: models of several kinds, or a method that is fitted in one step."""
    if not _of_one_kind(run.model):
        names = ", ".join(dict.fromkeys(_poolings(run.model)))
        raise ExportError(
            f"Expected scorers of one kind for {form}, got scorers of several models, weighted or rescaled ({names}); "
            "export safetensors, score bags with `midam predict`, or train one kind by `--method midam`."
        )
    if run.method is not None:
        raise ExportError(
            f"Expected a method that midam trains for {form}, got {run.method!r}; export safetensors, or score bags "
            "with `midam predict`."
        )


def require_plain(run: LoadedRun) -> None:
    """Raise an `ExportError` for a run whose encoder or pooling score_bags.py does not know."""
    require_trained(run, "score_bags.py")
    scorer = scorers_of(run.model)[0]
    if "." in _name(_inner(scorer)):
        part, ours = f"the encoder {run.settings.model.encoder!r}", "an encoder of midam"
    elif "." in _name(scorer.pooling):
        part, ours = f"the pooling {run.settings.method.pooling!r}", "a pooling of midam"
    else:
        return
    raise ExportError(
        f"Expected {ours} for score_bags.py, which holds no code of other packages, got {part}; export ONNX, or load "
        "model.safetensors into that package."
    )


def _of_one_kind(model: BagEnsemble) -> bool:
    """Return whether all scorers have the same kind and weight, so that the first describes all."""
    kinds = {type(scorer.pooling) for scorer in scorers_of(model)}
    return len(kinds) == 1 and RescaledPooling not in kinds and weights_of(model) is None


def _is_fine(model: BagEnsemble) -> bool:
    """Return whether any feature varies too little for the resolution of float32 at its mean."""
    standardizer = scorers_of(model)[0].standardizer
    if not isinstance(standardizer, Standardizer):
        return False
    return bool((standardizer.center.abs() > _FINE * standardizer.scale).any())


def _poolings(model: BagEnsemble) -> list[str]:
    return [scorer.pooling.name for scorer in scorers_of(model)]


def _architecture(model: BagEnsemble, shape: list[int]) -> dict[str, Any]:
    scorers = scorers_of(model)
    if not _of_one_kind(model):
        return {"instance_shape": shape, "members": len(scorers), "poolings": _poolings(model)}
    scorer = scorers[0]
    pooling, standardizer = scorer.pooling, scorer.standardizer
    clip = getattr(standardizer, "clip", float("inf"))
    return {
        "instance_shape": shape,
        "members": len(scorers),
        "scaling": getattr(standardizer, "scaling", "linear"),
        "clip": clip if clip < float("inf") else None,
        "encoder": {
            "name": _name(_inner(scorer)),
            "prefix": "encoder.module." if isinstance(scorer.encoder, Encoder) else "encoder.",
        },
        "pooling": {
            "name": _name(pooling),
            **{name: getattr(pooling, name) for name in _NUMBERS if hasattr(pooling, name)},
        },
    }


def _inner(scorer: BagScorer) -> object:
    """Return the encoder without the wrapper that freezes its parts."""
    return scorer.encoder.module if isinstance(scorer.encoder, Encoder) else scorer.encoder


def _name(part: object) -> str:
    """Return the name of an encoder or pooling of midam, or the class path of another."""
    kind = type(part)
    if isinstance(part, Pooling) and kind.__module__.startswith("midam.nn.pooling."):
        return part.name
    return _ENCODERS.get(kind, f"{kind.__module__}.{kind.__qualname__}")
