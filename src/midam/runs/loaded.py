"""A run loaded from its folder: the model, its settings and its decision; its scores of bags."""

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder
from midam.data.digests import bag_digests, set_digests
from midam.data.sources.request import Request
from midam.errors import CheckpointError, given, path_of
from midam.evaluate.calibrate import BinaryDecision, PlattCalibrator
from midam.evaluate.decisions import Decision
from midam.evaluate.predict import inputs_of, predict, prepared, saved_coder
from midam.methods.names import make_method
from midam.names import nearby
from midam.nn.scorer import BagEnsemble, all_weights
from midam.registry import take_known
from midam.runs.folder import RunFolder
from midam.runs.typical import warn_of_units
from midam.settings import ResolvedSettings, Settings
from midam.targets import Target, target_named
from midam.train.build import fill_ensemble
from midam.train.checkpoint import ModelContent, TrainerContent, fitting, load_checkpoint, named_parts


@dataclass(frozen=True)
class LoadedRun:
    """The model of a run with its settings, its decision and the description of its data.

    Attributes
    ----------
    model : BagEnsemble
        All members, in evaluation mode, on the CPU.
    settings : ResolvedSettings
        Settings of the run.
    decision : Decision, optional
        Rule that turns scores into predictions, fitted on the validation bags; None if these do not suffice, or the run
        did not finish. For two classes, `calibrator` and `threshold` are its parts.
    splits, contents : dict of str to str
        Split of each bag of the run, by bag id and by the digests of its instances.
    groups : dict of str to str
        Split of each group of the training and validation bags; "train" if some of its bags are training bags.
    data : dict
        source, place, fingerprint, instance_shape, classes, feature_names, cut, imputed and columns of the run's data.
    source : str
        Folder of the run, for messages.
    method : str, optional
        Name of a method that is fitted in one step, see `midam fit --method`; None if `settings` define the method.
    parts : list of dict, optional
        Parts of a model that `auto` chose, as the model file has them.

    Examples
    --------
    >>> import tempfile
    >>> from midam import Bags, MIDAMClassifier, predict
    >>> bags, labels = [[[float(i)], [i + 0.5]] for i in range(30)], ["benign", "malignant"] * 15
    >>> path = Path(tempfile.mkdtemp()) / "run"
    >>> MIDAMClassifier(epochs=1, members=1).fit(bags, labels).save(path)
    >>> run = load_run(path)
    >>> run.data["classes"], run.settings.training.epochs
    (['benign', 'malignant'], 1)
    >>> predict(run.model, Bags.from_list([[[2.0]], [[0.5], [1.0]]])).shape
    (2,)
    """

    model: BagEnsemble
    settings: ResolvedSettings
    decision: Decision | None
    splits: dict[str, str]
    contents: dict[str, str]
    groups: dict[str, str]
    data: dict[str, Any]
    source: str = "memory"
    method: str | None = None
    parts: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        # Scoring needs the model's features and the values that replace missing ones.
        self.model.inputs = inputs_of(self.data, self.source)

    @property
    def columns(self) -> ColumnCoder | None:
        """Encoder of categories and times; None if all columns were numbers."""
        return None if self.model.inputs is None else self.model.inputs.columns

    def digest(self) -> str:
        """Return the SHA-256 of weights, calibration, threshold, imputed values and column encoder, as hexadecimal."""
        imputed, saved = self.data.get("imputed"), self.target.saved(self.decision)
        hashed = [saved["threshold"], saved["calibrator"], imputed and imputed["values"]]
        hashed += [saved["decision"]] if "decision" in saved else []
        hashed += [self.data["columns"]] if self.data.get("columns") else []
        digest = hashlib.sha256(json.dumps(hashed).encode())
        for name, value in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value.cpu().numpy()).data)
        return digest.hexdigest()

    @property
    def target(self) -> Target:
        """Target of the run."""
        return target_named(self.data.get("outcome"), classes=self.data.get("classes"))

    @property
    def calibrator(self) -> PlattCalibrator | None:
        """Calibrator from scores of two classes to probabilities; None for other targets, or without a decision."""
        return self.decision.calibrator if isinstance(self.decision, BinaryDecision) else None

    @property
    def threshold(self) -> float | None:
        """Operating point on the score of two classes; None for other targets, or without a decision."""
        return self.decision.threshold if isinstance(self.decision, BinaryDecision) else None

    def recoded(self, bags: Bags) -> Bags:
        """Return bags with the classes, grades or labels of the run, in its order, if they have labels of its target.

        A store, or bags from Python, may have the same names in another order, or only some of them.
        """
        target = "binary" if bags.outcome is None else bags.outcome.target
        if target != self.target.name:
            return bags
        from midam.data.sources.inputs import with_asked_labels

        return with_asked_labels(bags, Request(bags.source, target=target, classes=self.target.names))

    def known_splits(self, bags: Bags) -> list[str | None]:
        """Return the split of each bag of the run, which its content names in any order; None for a new bag."""
        known = self.contents.get
        return [known(unordered, known(digest)) for unordered, digest in zip(set_digests(bags), bag_digests(bags))]

    def warn_of_lost_groups(self, bags: Bags) -> None:
        """Warn that intervals count bags, if the run's bags have groups and these neither have nor are such."""
        if self.groups and bags.groups is None and self.groups.keys().isdisjoint(bags.ids.tolist()):
            text = f"the bags of {self.source} have groups, such as patients, these have none (in {bags.source})"
            advice = f"intervals count bags; if some are of one group, name its column with {given(groups='COLUMN')}"
            warnings.warn(f"{text}: {advice}", stacklevel=3)


def load_run(path: str | Path) -> LoadedRun:
    """Load a run from its folder; an interrupted run gives its last complete epoch, uncalibrated, with a warning.

    Parameters
    ----------
    path : str or Path
        The folder.

    Raises
    ------
    CheckpointError
        If there is no run, or its model file is damaged.
    ConfigError
        If it needs a plug-in that is not imported; nothing is imported because a file names it.
    """
    folder = RunFolder(path_of(path, "a run folder"))
    if not folder.root.exists():
        raise CheckpointError(f"Expected the folder of a run, got nothing at {folder.root}; {nearby(folder.root)}")
    # The summary is written after the model: a summary without a model means that the model file was lost.
    if not folder.model.exists() and folder.last.exists() and not folder.summary.exists():
        used = "its last whole epoch is used, without calibration; finish it with"
        warnings.warn(f"{folder.root} did not finish: {used} `midam fit --resume {folder.root}`", stacklevel=2)
        file = folder.last
        content = load_checkpoint(file, TrainerContent)
        content |= {"model": content["trainer"]["model"], "calibrator": None, "threshold": None}
    else:
        path = file = folder.model
        content = load_checkpoint(file, ModelContent)
    method = content.get("method")
    take_known(named_parts(content), file)
    shape, target = tuple(content["data"]["instance_shape"]), target_named(content["data"].get("outcome"))
    settings = Settings.from_flat(content["config"], source=str(path)).resolve(shape)
    with fitting(file):
        if method is None:
            weights, coder = all_weights(content["model"]), saved_coder(content["model"])
            model = fill_ensemble(settings, weights, instance_shape=shape, columns=target.count, coder=coder)
        else:
            model = make_method(method).model(shape, content["model"], content.get("parts") or [])
        model.load_state_dict(content["model"])
        decision = target.decision(content)
    return LoadedRun(
        model=model.eval(),
        settings=settings,
        decision=decision,
        **{name: content[name] for name in ("splits", "contents", "groups", "data")},
        source=str(folder.root),
        method=method,
        parts=content.get("parts"),
    )


def predict_run(
    run: LoadedRun, bags: Bags, *, on_bags: Callable[[Sequence[int]], None] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return scores [N], or [N, C] for several columns, and probabilities [N], None if the run is not calibrated.

    `on_bags` is called with the positions of bags that were just scored.
    """
    bags = prepared(run.model, bags)
    warn_of_units(bags, run.data, run=run.source)
    scores = predict(run.model, bags, chunk_size=run.settings.run.chunk_size, on_bags=on_bags)
    return scores, None if run.calibrator is None else run.calibrator.predict(scores)
