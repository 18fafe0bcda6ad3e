"""The config.json of an export: its model without weights, paths of a machine and names of bags."""

from pathlib import Path
from typing import Any

from midam._version import __version__
from midam.errors import ExportError
from midam.evaluate.covariates import covariate_names
from midam.nn.encoders import MLP, Encoder, ResNet20
from midam.nn.ensemble import BagEnsemble, scorers_of, weights_of
from midam.nn.pooling import Pooling
from midam.nn.pooling.rescaled import RescaledPooling
from midam.nn.scorer import BagScorer
from midam.nn.standardizer import Standardizer
from midam.report.pseudonyms import PATHS
from midam.runs.loaded import LoadedRun
from midam.runs.method import taken_settings

_FINE = 2.0**14
_NUMBERS = ("squash", "temperature", "exponent")
_ENCODERS: dict[type, str] = {MLP: "mlp", ResNet20: "resnet20"}


def describe(run: LoadedRun) -> dict[str, Any]:
    """Content of config.json: architecture, calibration, data and settings of a run."""
    settings = run.settings.flat() if run.method is None else taken_settings(run.settings)
    data, imputed = run.data, run.data.get("imputed")
    # Of a path of the machine of the training the last part is kept.
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
        # Tables are read in float64; what most images hold is exact in float32.
        "onnx": {"dtype": "float64" if len(shape) == 1 or _is_fine(run.model) else "float32"},
        "data": {
            "name": Path(data["source"]).name,
            "fingerprint": data["fingerprint"],
            "feature_names": data["feature_names"],
            "classes": data.get("classes"),
            "bag_column": run.settings.data.bag_column,
            "cut": data.get("cut"),
            # What stands for a missing value of each feature, in the shape of an instance.
            "imputed": None if imputed is None else {key: imputed[key] for key in ("how", "values")},
        },
        "settings": settings,
    }


def refuse_covariates(run: LoadedRun) -> None:
    """Refuse a run whose score takes covariates, which no format holds, by an `ExportError`."""
    names = covariate_names(run.model)
    if names:
        raise ExportError(
            f"Expected a model of instances alone to export, got one that takes the covariates {', '.join(names)}; "
            "score bags with `midam predict`, or train without `covariates`."
        )


def _outcome(run: LoadedRun) -> dict[str, Any]:
    """Target, names and decision of a model that is not binary."""
    if run.target.name == "binary":
        return {}
    return {**run.target.description, "decision": None if run.decision is None else run.decision.to_dict()}


def require_trained(run: LoadedRun, what: str) -> None:
    """Refuse a run that `what` cannot hold: models of several kinds, or of a method that is fitted in one step."""
    if not _of_one_kind(run.model):
        names = ", ".join(dict.fromkeys(_poolings(run.model)))
        raise ExportError(
            f"Expected scorers of one kind for {what}, got those of several models, weighted or rescaled ({names}); "
            "export safetensors, or score bags with `midam predict`."
        )
    if run.method is not None:
        raise ExportError(
            f"Expected a method that midam trains for {what}, got {run.method!r}; export safetensors, or score bags "
            "with `midam predict`."
        )


def require_plain(run: LoadedRun) -> None:
    """Refuse a run whose encoder or pooling score_bags.py does not know, by an `ExportError`."""
    require_trained(run, "score_bags.py")
    scorer = scorers_of(run.model)[0]
    if "." in _name(_inner(scorer)):
        what, ours = f"the encoder {run.settings.model.encoder!r}", "an encoder of midam"
    elif "." in _name(scorer.pooling):
        what, ours = f"the pooling {run.settings.method.pooling!r}", "a pooling of midam"
    else:
        return
    raise ExportError(
        f"Expected {ours} for score_bags.py, which holds no other code than its own, got {what}; export ONNX, or load "
        "model.safetensors into that code."
    )


def _of_one_kind(model: BagEnsemble) -> bool:
    """Whether what is said of the first scorer holds for all, and they weigh the same."""
    kinds = {type(scorer.pooling) for scorer in scorers_of(model)}
    return len(kinds) == 1 and RescaledPooling not in kinds and weights_of(model) is None


def _is_fine(model: BagEnsemble) -> bool:
    """Whether some channel varies by less than float32 tells at its size."""
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
    """The encoder, out of what freezes parts of it."""
    return scorer.encoder.module if isinstance(scorer.encoder, Encoder) else scorer.encoder


def _name(part: object) -> str:
    """Our own name of an encoder or pooling of ours, else its class path."""
    kind = type(part)
    if isinstance(part, Pooling) and kind.__module__.startswith("midam.nn.pooling."):
        return part.name
    return _ENCODERS.get(kind, f"{kind.__module__}.{kind.__qualname__}")
