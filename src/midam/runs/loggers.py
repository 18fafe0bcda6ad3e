"""Loggers of Fabric that get the metrics of a training in addition to metrics.csv.

A logger is a function or class that returns a `lightning_fabric.loggers.Logger`. It gets the arguments of the setting
`logger_args` and, if it has parameters of these names, `root`, the run folder, and `title`, the name of the run.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from midam.errors import ConfigError, MidamError, first_line, need_package
from midam.registry import LOGGERS, build
from midam.settings import Settings


class Tracking:
    """Send the metrics of a run to the logger that the settings name; if it fails, the training continues.

    The constructor writes nothing; it raises a `MidamError` if there is no such logger.
    """

    def __init__(self, settings: Settings, root: Path) -> None:
        name, arguments = settings.run.logger, settings.run.logger_args
        offered, label = {"root": root, "title": root.name}, f"the logger {name!r} in logger_args"
        self.logger, self._failed = build(LOGGERS.find(name), part=label, offered=offered, arguments=arguments), False
        if not isinstance(self.logger, Logger):
            got = type(self.logger).__name__
            raise ConfigError(f"Expected a Logger of Lightning Fabric from {name!r}, got {got}; name another `logger`.")

    def start(self, settings: Settings) -> None:
        """Log the settings; raise a `MidamError` if the logger cannot be reached."""
        try:
            self.logger.log_hyperparams(settings.flat())
        except Exception as error:  # a server may raise any error
            raise MidamError(
                f"Expected the logger {settings.run.logger!r} to accept the run, got {first_line(error)}; log in, "
                "correct `logger_args`, or leave `logger` out."
            ) from error

    def log(self, row: Mapping[str, Any], *, step: int) -> None:
        """Log the numbers of an epoch that are not None."""
        numbers = {name: float(value) for name, value in row.items() if value is not None and name != "epoch"}
        self._guarded(lambda: self.logger.log_metrics(numbers, step=step))

    def close(self, status: str) -> None:
        """End the log with a status, "success" or "failed"."""
        self._guarded(lambda: self.logger.finalize(status))

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
    need_package("tensorboard", "for the logger", extra="track")
    defaults = {"root_dir": root, "name": "", "version": "tensorboard", "default_hp_metric": False}
    return TensorBoardLogger(**{**defaults, **arguments})
