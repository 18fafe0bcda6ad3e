"""Options of every study: its size, the folder of its page, and the folder of its trials."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from midam.compare.workers import Workers
from midam.errors import ConfigError

OUT = Path("records")
CACHE = Path("runs/studies")


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study.

    Examples
    --------
    >>> StudyOptions(quick=True, margin=0.1).command("table2")
    'python -m studies table2 --quick --margin 0.1'
    """

    quick: bool = False  # Run only a part of the study, for minutes
    out: Path = OUT  # Folder of the page and its figures
    jobs: int = 1  # Number of parallel processes
    backend: str = "loky"  # Where they run, see `midam.compare.workers.Workers`
    cluster: str | None = None  # Address of the cluster of that backend
    cache: Path = CACHE  # Folder of the finished trials, from which a stopped study continues
    smaller: bool = False  # A version for tests that takes seconds; its figures have no meaning
    margin: float | None = None  # Margin c of the AUC objectives, if the study has this option
    splits: int | None = None  # Number of random splits, if the study has this option
    protocol: str | None = None  # Protocol, if the study has several
    size: str | None = None  # Size of the study, if it has several
    device: str | None = None  # Device that trains scorers, if the study can use a GPU
    # Stream for the progress bar. Default: none
    console: Console | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(f"Expected jobs >= 1, got {self.jobs}; choose another number.")
        if self.margin is not None and not 0 < self.margin < float("inf"):
            raise ConfigError(f"Expected margin > 0, got {self.margin}; choose another margin.")
        if self.splits is not None and self.splits < 2:
            raise ConfigError(f"Expected splits >= 2, got {self.splits}; an interval needs two splits.")
        if self.device not in (None, "auto", "cpu", "cuda"):
            raise ConfigError(f"Expected device auto, cpu or cuda, got {self.device!r}; choose one.")

    def workers(self) -> Workers:
        """Return the workers that run trials; with ``device="cuda"``, each worker gets a separate GPU."""
        return Workers(self.backend, self.jobs, self.cluster, gpu=self.device == "cuda")

    def use_cuda(self) -> bool:
        """Return whether scorers are trained on a GPU."""
        found = torch.cuda.is_available()
        if self.device == "cuda" and not found:
            raise ConfigError("Expected a CUDA device for --device cuda, got none; use auto or cpu.")
        return found and self.device != "cpu"

    def command(self, name: str) -> str:
        """Return the command that repeats the study, without the folders of its page and its trials."""
        words = ["python", "-m", "studies", name]
        words += ["--quick"] if self.quick else []
        words += ["--protocol", self.protocol] if self.protocol is not None else []
        words += ["--margin", f"{self.margin:g}"] if self.margin is not None else []
        words += ["--splits", str(self.splits)] if self.splits is not None else []
        words += ["--size", self.size] if self.size is not None else []
        words += ["--device", self.device] if self.device is not None else []
        words += ["--jobs", str(self.jobs)] if self.jobs != 1 else []
        words += ["--backend", self.backend] if self.backend != "loky" else []
        words += ["--cluster", self.cluster] if self.cluster is not None else []
        return shlex.join(words)
