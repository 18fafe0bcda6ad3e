"""The page about a comparison: what stands in its folder, gathered for `midam.report.html`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from midam.compare.summary import basis
from midam.errors import CheckpointError
from midam.files import write_text
from midam.report.html.comparison import Method, MethodsStudy, Tested, comparison_page
from midam.settings import Settings, read_yaml

PREDICTIONS = "predictions.csv"


def write_comparison_report(folder: Path, *, out: Path | None = None) -> Path:
    """Write the page about a finished comparison; returns its path, by default report.html in its folder.

    Raises
    ------
    CheckpointError
        If the folder holds no finished comparison.
    """
    path = out or folder / "report.html"
    for name in ("summary.csv", PREDICTIONS, "trials.csv", "config.yaml"):
        if not (folder / name).exists():
            raise CheckpointError(
                f"Expected a finished comparison, got {folder} without {name}; repeat `midam compare` as it was."
            )
    record = read_yaml(folder / "config.yaml")
    summary, trials = (pd.read_csv(folder / f"{name}.csv") for name in ("summary", "trials"))
    scores = pd.read_csv(folder / PREDICTIONS, dtype={"bag": str}, keep_default_na=False)
    methods = [_method(row, trials, scores) for row in summary.to_dict("records")]
    settings = record["settings"]
    usual = Settings(encoder=settings["encoder"]).flat() if "." not in settings["encoder"] else Settings().flat()
    changed = [
        (name, json.dumps(value), json.dumps(usual[name]))
        for name, value in settings.items()
        if usual.get(name) not in (value, None, "auto")  # these go by the shape of the instances
    ]
    lines = (folder / "summary.md").read_text(encoding="utf-8").splitlines()
    study = MethodsStudy(
        data=Path(record["data"]).name,
        methods=methods,
        basis=basis(folds=len(trials[["repeat", "fold"]].drop_duplicates())),
        changed=changed,
        settings=[(name, json.dumps(value)) for name, value in settings.items()],
        facts=[
            ("data", str(record["data"])),
            ("SHA-256 of the data", str(record["fingerprint"])),
            ("SHA-256 of the folds", str(record["folds"])),
            ("learning rates to choose from", ", ".join(map(str, record["lrs"]))),
            ("margins to choose from", ", ".join(map(str, record["margins"]))),
            ("epoch that is tested", str(record["select"])),
            ("versions", f"midam {record['version']}"),
        ],
        notes=[line.removeprefix("- ") for line in lines if line.startswith("- ")],
    )
    write_text(path, comparison_page(study))
    return path


def _method(row: dict[Any, Any], trials: pd.DataFrame, scores: pd.DataFrame) -> Method:
    name = str(row["method"])
    own, of_trials = scores[scores["method"] == name], trials[trials["method"] == name]
    areas = {(trial["repeat"], trial["fold"]): trial for trial in of_trials.to_dict("records")}
    tested = []
    for repeat, fold in sorted(set(zip(own["repeat"].tolist(), own["fold"].tolist()))):
        part = own[(own["repeat"] == repeat) & (own["fold"] == fold)]
        arrays = (part["bag"].to_numpy(np.str_), part["label"].to_numpy(np.int64), part["score"].to_numpy(np.float64))
        tested.append(Tested(repeat, fold, *arrays, auroc=float(areas[repeat, fold]["auroc"])))
    figures = {key: float(value) for key, value in row.items() if key != "method"}
    return Method(name, figures, tested)
