"""Write a run as a folder for others: weights, a model card, ONNX, and a file of Python that needs torch alone."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from midam.errors import CheckpointError, ExportError, RunExistsError, check_each, nearest, need_package, path_of
from midam.export.card import card_text
from midam.export.config import describe, refuse_covariates, require_plain, require_trained
from midam.files import held, write_bytes, write_json, write_text
from midam.plain_files import remove_own
from midam.runs.folder import RunFolder
from midam.runs.forms import read_summary
from midam.runs.loaded import LoadedRun, load_run

_HERE = Path(__file__).parent


def export_run(
    path: str | Path, out: str | Path, *, formats: Sequence[str] = (), license: str | None = None, trust: bool = False
) -> list[str]:
    """Write a finished run to the folder `out`; returns the formats that were written.

    The folder gets README.md, a model card as the Hugging Face hub reads it, config.json, and by format:

    - "safetensors": model.safetensors, the weights under the names that they have in midam;
    - "python": score_bags.py, which scores bags with torch alone, and the weights beside it;
    - "onnx": onnx/chunk.onnx, merge.onnx and score.onnx, with which score_onnx.py scores bags in onnxruntime.

    All of them score bags of any size in the memory of a chunk, average the members, and fill missing values as the run
    does (`midam.settings.Settings` `impute`), or refuse them. No id of a bag, no name of a patient and no path of this
    machine is written.

    Parameters
    ----------
    path : str or Path
        Run folder.
    out : str or Path
        New or empty; it is there when all of it is written, or not at all.
    formats : sequence of str
        Default: all that this run can have; what it cannot have is warned of.
    license : str, optional
        Identifier of the license of the model, such as "mit" or "cc-by-nc-4.0", for the card.
    trust : bool, default False
        As in `midam.load_run`.

    Raises
    ------
    ExportError
        If a format that was asked for cannot hold the run, or none can: one that takes covariates.
    CheckpointError
        If there is no run, or it did not finish. The card of a model that a classifier or a comparison has saved has no
        results.
    RunExistsError
        If the folder holds something.
    MidamError
        If a package is missing (extra ``export``).
    """
    path, out = path_of(path, "a run folder"), path_of(out, "a folder")
    check_each(formats, _check_format)
    found = _has_summary(path)
    run = load_run(path, trust=trust)
    summary = read_summary(RunFolder(path), run.settings)[0] if found else {}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunExistsError(f"Expected a new or empty folder for the export, got {out}; choose another or empty it.")
    part = out.with_name(f"{out.name}.part")
    with held(
        out.with_name(f"{out.name}.export"),
        busy=RunExistsError(f"Expected one export at a time, got another one to {out}; wait for it."),
    ):
        remove_own(part)  # of a call that was killed
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
    """Write a loaded run as `export_run` does, and straight into a folder.

    `summary` is what its summary.json holds; empty for a run that `midam fit` has not written.
    """
    refuse_covariates(run)
    config, done = describe(run), []
    for name in formats or FORMATS:
        try:
            FORMATS[name](run, folder, config)
        except ExportError as error:
            if formats:
                raise
            warnings.warn(f"without {name}: {error}", UserWarning, stacklevel=3)
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
    write_bytes(folder / "score_onnx.py", (_HERE / "score_onnx.py").read_bytes())


def _need(module: str) -> Any:
    return need_package(module, "to export", extra="export")


def _check_format(name: str) -> None:
    if name not in FORMATS:
        raise ExportError(f"Expected a format among {', '.join(FORMATS)}, got {name!r}; {nearest(name, FORMATS)}")


def _has_summary(path: Path) -> bool:
    """Whether a run has a summary.json; a `CheckpointError` for one that must have one."""
    folder = RunFolder(path)
    if folder.model.exists() and not folder.summary.exists() and not folder.last.exists():
        return False
    if folder.config.exists() and not (folder.summary.exists() and folder.model.exists()):
        raise CheckpointError(
            f"Expected a finished run, got one that was stopped (in {path}); finish it with `midam fit --resume "
            f"{path}`."
        )
    if not folder.summary.exists():
        raise CheckpointError(f"Expected a run folder with summary.json, got {path}; check the path.")
    return True


FORMATS: dict[str, Callable[[LoadedRun, Path, dict[str, Any]], None]] = {
    "safetensors": _safetensors,
    "python": _python,
    "onnx": _onnx,
}
