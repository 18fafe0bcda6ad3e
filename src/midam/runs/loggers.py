"""Loggers of Fabric that get the metrics of a training in addition to metrics.csv: TensorBoard, MLflow or W&B.

A logger is a function or class that returns a `lightning_fabric.loggers.Logger`. It gets the arguments of the setting
`logger_args` and, if it has parameters of these names, `root`, the run folder, and `title`, the name of the run.
"""

import uuid
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from midam.errors import ConfigError, MidamError, first_line, need_package
from midam.files import write_json
from midam.reading import read_json
from midam.registry import LOGGERS, build
from midam.settings import Settings


def make_loggers(settings: Settings, *, root: Path, title: str) -> list[Any]:
    """Return the logger that the settings name, or raise a `MidamError`; nothing is written yet."""
    name, arguments, offered = settings.run.logger, settings.run.logger_args, {"root": root, "title": title}
    label = f"the logger {name!r} in logger_args"
    logger = build(LOGGERS.find(name), part=label, offered=offered, arguments=arguments)
    if not isinstance(logger, Logger):
        raise ConfigError(
            f"Expected a Logger of Lightning Fabric from {name!r}, got {type(logger).__name__}; name another `logger`."
        )
    return [logger]


class Tracking:
    """Send the metrics of a run to the loggers of its Fabric; if a logger fails, the training continues."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric, self._failed = fabric, False

    def start(self, settings: Settings) -> None:
        """Log the settings; raise a `MidamError` if a logger cannot be reached."""
        for logger in self._fabric.loggers:
            try:
                logger.log_hyperparams(settings.flat())
            except Exception as error:  # a server may raise any error
                raise MidamError(
                    f"Expected the logger {settings.run.logger!r} to accept the run, got {first_line(error)}; log in, "
                    "correct `logger_args`, or leave `logger` out."
                ) from error

    def log(self, row: Mapping[str, Any], *, step: int) -> None:
        """Log the numbers of an epoch that are not None."""
        numbers = {name: float(value) for name, value in row.items() if value is not None and name != "epoch"}
        self._guarded(partial(self._fabric.log_dict, numbers, step=step))

    def summarize(self, summary: Mapping[str, Any], *, step: int) -> None:
        """Log AUROC, AUPRC and Brier score of each split of the finished run, and the baseline's AUROC."""
        splits = {name: part for name, part in summary.items() if isinstance(part, Mapping) and "auroc" in part}
        figures = {
            f"final_{split}_{name}": part.get(name)
            for split, part in splits.items()
            for name in ("auroc", "auprc", "brier")
        }
        self.log(figures, step=step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for logger in self._fabric.loggers:
            self._guarded(partial(logger.finalize, "success" if kind is None else "failed"))

    def _guarded(self, call: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            call()
        except Exception as error:  # a server may raise any error
            self._failed = True
            warnings.warn(f"the logger failed, and this run logs no more: {first_line(error)}", stacklevel=3)


def tensorboard(root: Path, **arguments: Any) -> TensorBoardLogger:
    """Return Fabric's TensorBoardLogger with `arguments`; it writes to the folder `tensorboard` of the run."""
    _need("tensorboard", "track")
    defaults = {"root_dir": root, "name": "", "version": "tensorboard", "default_hp_metric": False}
    return TensorBoardLogger(**{**defaults, **arguments})


class MLflowLogger(Logger):
    """A run of MLflow, under the same id when the training is resumed.

    Parameters
    ----------
    root, title : Path, str
        Run folder, which stores the id, and name of the run.
    experiment : str
        Made if there is none of that name.
    tracking_uri : str, optional
        Default: ``MLFLOW_TRACKING_URI``, or else MLflow's default.
    tags : dict, optional
        Tags of the run.
    """

    name = "mlflow"

    def __init__(
        self,
        root: Path,
        title: str,
        *,
        experiment: str = "midam",
        tracking_uri: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        self._mlflow = _need("mlflow", "mlflow")
        self._root, self._title, self._experiment = root, title, experiment
        self._uri, self._tags = tracking_uri, tags
        self._client: Any = None
        self._id = _remembered(root, self.name)

    @property
    def version(self) -> str | None:
        """Id of the run."""
        return self._id

    @property
    def client(self) -> Any:
        """The client; its first use makes the MLflow run, or continues the run whose id is in the run folder."""
        if self._client is None:
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            if self._id is None:
                experiment = self._client.get_experiment_by_name(self._experiment)
                group = experiment.experiment_id if experiment else self._client.create_experiment(self._experiment)
                self._id = self._client.create_run(group, run_name=self._title, tags=self._tags).info.run_id
                _remember(self._root, self.name, self._id)
            else:
                self._client.update_run(self._id, status="RUNNING")
        return self._client

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Log the settings that MLflow does not have yet."""
        client, entities = self.client, self._mlflow.entities
        logged = client.get_run(self._id).data.params
        texts = [entities.Param(key, str(value)) for key, value in params.items() if key not in logged]
        for low in range(0, len(texts), 100):  # the limit of a server for one call
            client.log_batch(self._id, params=texts[low : low + 100])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers."""
        for key, value in metrics.items():
            self.client.log_metric(self._id, key, value, step=step)

    def finalize(self, status: str) -> None:
        """End the run."""
        if self._client is not None:
            self._client.set_terminated(self._id, status="FINISHED" if status == "success" else "FAILED")


class WandbLogger(Logger):
    """A run of W&B, under the same id when the training is resumed.

    Parameters
    ----------
    root, title : Path, str
        Run folder, which holds the files of W&B and stores the id, and name of the run.
    project : str
        Made if there is none of that name.
    **arguments
        Further arguments of ``wandb.init``, such as ``mode="offline"``, entity, group or tags.
    """

    name = "wandb"

    def __init__(self, root: Path, title: str, *, project: str = "midam", **arguments: Any) -> None:
        self._wandb = _need("wandb", "wandb")
        self._root = root
        self._id = _remembered(root, self.name) or uuid.uuid4().hex[:12]
        self._options = {"project": project, "name": title, "dir": root, "id": self._id, "resume": "allow", **arguments}
        self._run: Any = None

    @property
    def version(self) -> str:
        """Id of the run."""
        return self._id

    @property
    def experiment(self) -> Any:
        """The W&B run; its first use starts it."""
        if self._run is None:
            # Otherwise W&B prints to the console, and captures the output of midam.
            quiet = self._wandb.Settings(silent=True, console="off")
            self._run = self._wandb.init(settings=quiet, **self._options)
            _remember(self._root, self.name, self._id)
        return self._run

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Log settings."""
        self.experiment.config.update(dict(params), allow_val_change=True)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers."""
        self.experiment.log(dict(metrics), step=step)

    def finalize(self, status: str) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "success" else 1)


def _need(package: str, extra: str) -> Any:
    return need_package(package, "for the logger", extra=extra)


def _remembered(root: Path, name: str) -> str | None:
    """Return the id of this run in a logger; None if it has none yet."""
    path = root / "loggers.json"
    run_id = read_json(path).get(name) if path.exists() else None
    return run_id if isinstance(run_id, str) else None


def _remember(root: Path, name: str, run_id: str) -> None:
    write_json(root / "loggers.json", {name: run_id})
