"""The result of a run, written to and read from ``summary.json``."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field

from midam._version import __version__
from midam.errors import CheckpointError, nearest
from midam.files import write_json
from midam.lazy_imports import pandas as pd
from midam.reading import Form, check_form, file_digest, read_json, read_table
from midam.registry import TARGETS
from midam.runs.folder import SPLITS, RunFolder, environment
from midam.targets import Target, target_named

_TIMES = "seconds"  # the only entry that differs between equal runs


class Result(Form):
    """What a run has measured; unset entries are left out of the file.

    Attributes
    ----------
    test, out_of_fold, val, train : dict
        Metrics of each part that has bags, as `midam.targets.Target.summarize` returns them.
    folds, sites : int, dict
        Number of folds whose models scored the bags out of fold; if the folds are sites, their column and metrics.
    selected, by_weights : dict
        The reported weights ("last" or "best") with their epoch; the validation metric of both.
    method, members, epochs : dict, int, int
        Pooling, estimator and objective, or the name of a method of one step; scorers that are averaged; epochs.
    state : dict
        Tracked states of training bags next to the values of whole bags.
    baseline, baseline_note : dict or None, str
        The baseline next to the model, or why there is none; neither if the settings leave it out.
    covariates, auto : dict
        Weights of covariates; methods that `auto` tried.
    instances : dict
        For data with labels of instances: the score that was evaluated, and by part its metrics, see
        `midam.evaluate.labeled_instances`.
    assumption : dict
        How the scores of changed bags differ, see `midam.evaluate.assumption.check_assumption`.
    thresholds : dict
        Choice of the threshold of two classes.
    target, names : str, list of str
        Target and names of its classes; unset for two classes.
    data : dict
        Name, counts, fingerprint, shape and notes of the data.
    version, environment : str, dict
        Version of midam, and versions on which results can depend.
    files : dict
        SHA-256 of the tables of the run, by their names.
    seconds : dict
        Duration of each part of the run.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    test: dict[str, Any] = Field(default_factory=dict)
    out_of_fold: dict[str, Any] = Field(default_factory=dict)
    folds: int | None = None
    sites: dict[str, Any] | None = None
    val: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    selected: dict[str, Any] = Field(default_factory=dict)
    by_weights: dict[str, Any] = Field(default_factory=dict)
    method: dict[str, str] = Field(default_factory=dict)
    members: int = 1
    epochs: int = 0
    state: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    baseline_note: str | None = None
    covariates: dict[str, Any] | None = None
    auto: dict[str, Any] | None = None
    instances: dict[str, Any] | None = None
    assumption: dict[str, Any] | None = None
    thresholds: dict[str, Any] | None = None
    target: str | None = None
    names: list[str] = Field(default_factory=list)
    data: dict[str, Any]
    version: str = __version__
    environment: dict[str, str] = Field(default_factory=environment)
    files: dict[str, str] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Write summary.json with digests of the tables and of its entries; returns its content."""
        tables = [path for path in (folder.metrics, folder.predictions) if path.exists()]
        self.files = {path.name: file_digest(path) for path in tables}
        entries = self.model_dump(include={*self.model_fields_set, "version", "environment"})
        content = {**entries, "digest": _digest(entries)}
        write_json(folder.summary, content)
        return content

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """Read summary.json; raise a `CheckpointError` if it is missing, damaged or changed."""
        content = read_json(folder.summary)
        if content.pop("digest", None) != _digest(content):
            raise CheckpointError(
                f"Expected {folder.summary.name} as midam wrote it, got other content (in {folder.summary}); restore a "
                "copy of it, or make it again."
            )
        check_form(content, cls, folder.summary)
        return cls(**content)

    def table(self, path: Path, names: Iterable[str] = ()) -> "pd.DataFrame":
        """Return a table of the run as text, see `midam.reading.read_table`; refuse one that has changed."""
        return read_table(path, self.files.get(path.name), names=names)

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Metrics of the parts that have bags, in the order in which they are reported."""
        return {name: metrics for name in SPLITS if (metrics := getattr(self, name))}

    def entries(self) -> dict[str, Any]:
        """Return the entries that are set, as a dictionary."""
        return self.model_dump(exclude_unset=True)


def _digest(entries: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the entries, but for the times."""
    text = json.dumps({name: entries[name] for name in sorted(entries) if name != _TIMES}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def described_target(entries: Mapping[str, Any]) -> Target:
    """Return the target that entries name; without the entry `target`, that of two classes."""
    return target_named(None if entries.get("target") is None else entries)


class _Titled(Form):
    target: str | None = None
    names: list[str] = Field(default_factory=list)


def read_target(content: Mapping[str, Any], path: Path) -> Target:
    """Return the target that the content of a file names, after a check of its name and of the names of its classes."""
    check_form(content, _Titled, path)
    name, names = content.get("target"), content.get("names", [])
    if name is not None and name not in TARGETS.names():
        raise CheckpointError(
            f"Expected a known target, got {name!r} (in {path}, key target); {nearest(name, TARGETS.names())}"
        )
    target = target_named(None if name is None else {"target": name, "names": names})
    least, most = target.name_limits
    if name is not None and not (least <= len(set(names)) == len(names) <= (len(names) if most is None else most)):
        raise CheckpointError(
            f"Expected a valid entry, got {len(names)} names for the target {name} (in {path}, key names); restore a "
            "copy of it, or make it again."
        )
    return target
