"""Every error that `midam` raises on purpose.

    MidamError
    ├── BagDataError (ValueError)         bags, labels, groups or features that cannot be used
    │   ├── OneClassError                 only one class of bags where both are needed
    │   └── LeakageError                  one group in several splits
    ├── DataNotFoundError (FileNotFoundError)
    ├── ConfigError (ValueError)          a setting or a combination of settings that makes no sense
    ├── CheckpointError (ValueError)      a damaged or foreign checkpoint
    ├── StoreError (OSError)              a store that cannot be written: the place is taken, the disk is full
    ├── RunExistsError (FileExistsError)  the run folder is already in use
    ├── DivergedError                     training left the finite numbers
    └── RunStoppedError                   a run was stopped; it can be resumed

The command line turns each of them into one message and exit code 2 (130 for a stopped run).
"""


class MidamError(Exception):
    """Base class of all errors that `midam` raises on purpose."""


class BagDataError(MidamError, ValueError):
    """Bags, labels, groups or features that cannot be used."""


class OneClassError(BagDataError):
    """Only one class of bags where both are needed."""


class LeakageError(BagDataError):
    """Bags of one group stand in more than one split."""


class DataNotFoundError(MidamError, FileNotFoundError):
    """No data under this name or path."""


class ConfigError(MidamError, ValueError):
    """A setting, or a combination of settings, that makes no sense."""


class CheckpointError(MidamError, ValueError):
    """A checkpoint that is damaged, or that belongs to something else."""


class StoreError(MidamError, OSError):
    """A store that cannot be written: its place is taken, or the disk is full."""


class RunExistsError(MidamError, FileExistsError):
    """The run folder already holds a run."""


class DivergedError(MidamError):
    """The loss or the weights are no longer finite."""


class RunStoppedError(MidamError):
    """The run was stopped; it can be resumed."""
