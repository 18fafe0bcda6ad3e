"""Train a run on disk: from data and settings to a folder with weights, scores, metrics and figures."""

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from midam import __version__
from midam.data.bags import bag_digests
from midam.errors import CheckpointError, MidamError, RunStoppedError
from midam.evaluate.predict import predict
from midam.files import write_text
from midam.runs.data import SplitBags, read_data, split_data
from midam.runs.folder import RunFolder, csv_text
from midam.runs.results import write_reports
from midam.train.checkpoint import load_checkpoint, save_checkpoint
from midam.train.config import FitConfig, from_dict, to_dict
from midam.train.settings import read_yaml, yaml_text
from midam.train.trainer import Trainer, make_fabric

OnEpoch = Callable[[dict[str, Any], Trainer], None]
OnBags = Callable[[Sequence[int]], None]


def fit_run(
    data: str,
    config: FitConfig,
    folder: RunFolder,
    *,
    on_start: Callable[[], None] | None = None,
    on_epoch: OnEpoch | None = None,
    on_bags: OnBags | None = None,
) -> dict[str, Any]:
    """Train a new run.

    Parameters
    ----------
    data : str
        Catalogue name or path.
    config : FitConfig
        Settings.
    folder : RunFolder
        Free; created once the data and the settings have been checked.
    on_start : callable, optional
        Called when they have been, and the folder is there.
    on_epoch : callable, optional
        Called with the new row and the trainer after each epoch.
    on_bags : callable, optional
        Called with positions of bags that the trained model has scored; of all, once for each set of weights reported.

    Returns
    -------
    dict
        The summary, as in summary.json.

    Raises
    ------
    MidamError
        For bad data, settings that make no sense, or a folder in use: nothing has then been written. For a first epoch
        that fails: what was written is removed.
    RunStoppedError
        If a keyboard interrupt stopped the run; the folder holds the last whole epoch.
    """
    folder.require_free()
    parts = split_data(read_data(data, config), config)
    trainer = _make_trainer(config, parts, folder)
    with _leave_nothing(folder, trainer):
        write_text(folder.config, yaml_text({"data": data, **to_dict(trainer.config)}))
        origin = describe_origin(parts)
        _save(trainer, origin, folder, seconds=0.0)
        if on_start is not None:
            on_start()
        return _train(trainer, parts, origin, data, folder, on_epoch=on_epoch, on_bags=on_bags)


def resume_run(
    data: str | None, folder: RunFolder, *, on_epoch: OnEpoch | None = None, on_bags: OnBags | None = None
) -> dict[str, Any]:
    """Continue a run in place, bit for bit where it was.

    Parameters
    ----------
    data : str, optional
        Catalogue name or path; default: the run's own. Must hold the same bags.
    folder : RunFolder
        Of the run.
    on_epoch, on_bags : callable, optional
        As in `fit_run`.

    Returns
    -------
    dict
        The summary.

    Raises
    ------
    CheckpointError
        If the run's checkpoint is missing or damaged, or the data are not the run's.
    """
    config, recorded = read_run_config(folder)
    checkpoint = load_checkpoint(folder.last, required=("config", "trainer", "data", "seconds"))
    # Settings that the run does not know yet had their defaults.
    saved = to_dict(from_dict(checkpoint["config"], source=str(folder.last)))
    changed = [name for name, value in to_dict(config).items() if saved[name] != value]
    if changed:
        raise CheckpointError(
            f"Expected the settings that the run was started with, got another {changed[0]} (in {folder.config}); "
            "restore the file, or start a new run."
        )
    data = data or recorded
    parts = split_data(read_data(data, config), config)
    origin = describe_origin(parts)
    if checkpoint["data"]["fingerprint"] != origin["data"]["fingerprint"]:
        raise CheckpointError(
            f"Expected the data that the run was started with ({recorded}), got other bags (in {data}); "
            "resume with the same data, or start a new run."
        )
    trainer = _make_trainer(config, parts, folder)
    trainer.load_state_dict(checkpoint["trainer"])
    return _train(
        trainer, parts, origin, data, folder, on_epoch=on_epoch, on_bags=on_bags, seconds=checkpoint["seconds"]
    )


def read_run_config(folder: RunFolder) -> tuple[FitConfig, str]:
    """Settings of a run and the data it was trained on."""
    if not folder.config.exists():
        raise CheckpointError(f"Expected a run folder, got {folder.root} without config.yaml; check the path.")
    values = read_yaml(folder.config)
    data = str(values.pop("data", ""))
    return from_dict(values, source=str(folder.config)), data


def _make_trainer(config: FitConfig, parts: SplitBags, folder: RunFolder) -> Trainer:
    val = parts.part("val") if "val" in parts.splits else None
    return Trainer(config, parts.part("train"), val, fabric=_fabric(config, folder))


def _fabric(config: FitConfig, folder: RunFolder) -> Fabric:
    if config.logger != "tensorboard":
        return make_fabric(config)
    try:
        logger = TensorBoardLogger(root_dir=folder.root, name="", version="tensorboard")
    except ModuleNotFoundError:
        raise MidamError(
            "Expected the package tensorboard for logger 'tensorboard', got none; install midam[track]."
        ) from None
    return make_fabric(config, loggers=logger)


@contextmanager
def _leave_nothing(folder: RunFolder, trainer: Trainer) -> Iterator[None]:
    """Remove a new run that failed before its first epoch was done."""
    existed = folder.root.exists()
    try:
        yield
    except RunStoppedError:
        raise
    except (MidamError, OSError, KeyboardInterrupt):
        if trainer.epoch == 0 and folder.root.is_dir():
            shutil.rmtree(folder.root)
            if existed:
                folder.root.mkdir()
        raise


def _train(
    trainer: Trainer,
    parts: SplitBags,
    origin: dict[str, Any],
    data: str,
    folder: RunFolder,
    *,
    on_epoch: OnEpoch | None,
    on_bags: OnBags | None,
    seconds: float = 0.0,
) -> dict[str, Any]:
    started = time.monotonic() - seconds
    command = f"`midam fit {shlex.quote(data)} --resume {shlex.quote(str(folder.root))}`"
    try:
        _write_metrics(trainer, folder)
        while not trainer.finished:
            row = trainer.train_epoch()
            trainer.fabric.log_dict({k: v for k, v in row.items() if k != "epoch" and v is not None}, step=row["epoch"])
            # The best weights go first: killed in between, a resume repeats the epoch and writes them again, the same.
            if trainer.best_epoch == trainer.epoch:
                save_checkpoint(folder.best, {"model": trainer.reported.state_dict(), "epoch": trainer.epoch})
            seconds = time.monotonic() - started
            _save(trainer, origin, folder, seconds=seconds)
            _write_metrics(trainer, folder)
            if on_epoch is not None:
                on_epoch(row, trainer)
        return _finish(trainer, parts, origin, data, folder, seconds=seconds, on_bags=on_bags)
    except KeyboardInterrupt:
        raise RunStoppedError(
            f"stopped; {folder.root} holds everything up to the last whole epoch. Continue with {command}"
        ) from None
    except OSError as error:
        if isinstance(error, MidamError) or trainer.epoch == 0:
            raise
        raise MidamError(
            f"Expected to write {error.filename or folder.root}, got: {error.strerror or error}; make room or grant "
            f"access, then continue with {command}."
        ) from error


def _save(trainer: Trainer, origin: dict[str, Any], folder: RunFolder, *, seconds: float) -> None:
    content = {
        "version": __version__,
        "config": to_dict(trainer.config),
        "trainer": trainer.state_dict(),
        **origin,
        "seconds": seconds,
    }
    save_checkpoint(folder.last, content)


def describe_origin(parts: SplitBags) -> dict[str, Any]:
    """What a run remembers of its data, so that none of its bags or patients can pass for new: read once.

    "data" holds source, its place, fingerprint and form; "splits" the split of each bag by id, "contents" by the digest
    of its instances (the split nearest to training where bags are equal); "groups" those that were trained or validated
    on.
    """
    bags, names = parts.bags, parts.bags.feature_names
    digests = np.array(bag_digests(bags))
    contents: dict[str, str] = {}
    for name in ("test", "val", "train"):
        contents |= dict.fromkeys(digests[parts.splits == name].tolist(), name)
    seen = [] if bags.groups is None else sorted(set(bags.groups[parts.splits != "test"].tolist()))
    return {
        "data": {
            "source": bags.source,
            "place": str(Path(bags.source).resolve()),
            "fingerprint": bags.fingerprint(),
            "instance_shape": list(bags.instance_shape),
            "feature_names": None if names is None else list(names),
            "cut": bags.cut,
        },
        "splits": {str(bag): str(split) for bag, split in zip(bags.ids, parts.splits)},
        "contents": contents,
        "groups": seen,
    }


def _write_metrics(trainer: Trainer, folder: RunFolder) -> None:
    columns = ["epoch", "lr", "state_rate", "dual_lr", "loss", "train_auroc", "val_auroc"]
    write_text(folder.metrics, csv_text(columns, trainer.history))


def _finish(
    trainer: Trainer,
    parts: SplitBags,
    origin: dict[str, Any],
    data: str,
    folder: RunFolder,
    *,
    seconds: float,
    on_bags: OnBags | None,
) -> dict[str, Any]:
    config, model = trainer.config, trainer.reported
    last = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scores = {"last": predict(model, parts.bags, chunk_size=config.chunk_size, on_bags=on_bags)}
    if trainer.best_epoch is not None:
        model.load_state_dict(load_checkpoint(folder.best, required=("model",))["model"])
        scores["best"] = predict(model, parts.bags, chunk_size=config.chunk_size, on_bags=on_bags)
    selected = config.select if config.select in scores else "last"
    if selected == "last":
        model.load_state_dict(last)
    return write_reports(
        folder,
        trainer=trainer,
        parts=parts,
        data=data,
        scores=scores,
        selected=selected,
        described=origin,
        seconds=seconds,
    )
