"""The extension points: classes and functions by name, of midam or of other packages.

A row is ``name: "package.module.Object"``; an object is imported when it is first needed. A name that is not in the
table can be an entry point of an installed package, in the group ``midam.plugins``, with the name ``KIND.NAME``:

    [project.entry-points."midam.plugins"]
    "pooling.trimmed-mean" = "mypackage.heads:TrimmedMean"

or a class path. Importing a class path runs code, so a plain text is never imported: it must be a `ClassPath`. `typed`
marks the paths that the user wrote, and `midam.runs.trust` those that the user trusts. A text from a file is neither.
"""

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

from midam.errors import ConfigError, nearest, require

GROUP = "midam.plugins"


class ClassPath(str):
    """Class path that may be imported, because the user typed or trusts it; it compares and prints as its text."""

    __slots__ = ()


class NamedPart:
    """Base whose subclasses have a `name`: the one that the class sets itself, else the name of the class."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)


def typed(name: str) -> str:
    """Mark a name that the user typed, or wrote in Python: if it is a class path, it may be imported."""
    return ClassPath(name) if "." in name else name


class Registry:
    """Names of one `kind` of object, as named in messages and entry points; `rows` hold the class paths of midam.

    All classes must subclass `base`, a class path; without `base`, any callable is accepted. With `functions`,
    functions that return an instance are accepted too. Without `paths`, class paths are refused.

    Examples
    --------
    >>> shapes = Registry("shape", {"ordered": "collections.OrderedDict"}, base="builtins.dict")
    >>> shapes.find("ordered").__name__, shapes.find(typed("collections.Counter")).__name__
    ('OrderedDict', 'Counter')
    >>> shapes.check("orderd")
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected a known shape, got 'orderd'; did you mean 'ordered'?
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, str],
        *,
        base: str | None = None,
        functions: bool = False,
        paths: bool = True,
    ) -> None:
        self.kind = kind
        self.paths = paths
        self._rows = dict(rows)
        self._added: dict[str, Any] = {}
        self._base = base
        self._functions = functions

    def own(self) -> list[str]:
        """Return the class paths of midam."""
        return list(self._rows.values())

    def names(self) -> list[str]:
        """Return all names: those of midam, added names, and those of installed packages."""
        return list(dict.fromkeys([*self._rows, *self._added, *_plugins(self.kind)]))

    def add(self, name: str, thing: Any) -> None:
        """Register a class or function under `name` in this process; raise a `ConfigError` if either is unsuitable."""
        if name in self.names():
            raise ConfigError(f"Expected a new {self.kind} name, got {name!r}, which is taken; choose another.")
        self._added[name] = self._fitting(thing, name)

    def remove(self, name: str) -> None:
        """Remove a name that was added."""
        del self._added[name]

    def check(self, name: str) -> None:
        """Refuse an unknown name, and suggest the nearest; only `find` checks a class path."""
        require(name, str, self.kind, "name one of midam, or a class path")
        if name not in self.names() and not (self.paths and "." in name):
            raise ConfigError(f"Expected a known {self.kind}, got {name!r}; {nearest(name, self.names())}")

    def find(self, name: str) -> Any:
        """Find the class of a known name, or of a `ClassPath`, whose import runs the code of its module.

        Raise a `ConfigError` if the name is unknown, if the object cannot be imported or is unsuitable, and for a class
        path that is plain text, which is not imported.
        """
        self.check(name)
        if name not in self.names() and not isinstance(name, ClassPath):
            raise ConfigError(
                f"Expected the name of a known {self.kind}, got the class path {name!r}, which is not "
                f"trusted; {nearest(name, self.names())}"
            )
        if name in self._added:
            return self._added[name]
        point = _plugins(self.kind).get(name)
        if name in self._rows and point is not None:
            warnings.warn(
                f"{name!r} is the {self.kind} of midam, not that of the package {point.module!r}, which has the same "
                "name; rename that of the package",
                stacklevel=2,
            )
        elif point is not None:
            try:
                return self._fitting(point.load(), name)
            except (ImportError, AttributeError) as error:
                plugin = f"the {self.kind} {name!r} in the package {point.module!r}"
                raise ConfigError(f"Expected {plugin}, got {error}; fix or remove that package.") from None
        return self._fitting(import_path(ClassPath(self._rows.get(name, name)), kind=self.kind), name)

    def where(self, fits: Callable[[Any], bool]) -> list[str]:
        """Return the names of the objects that `fits` accepts, without those of a package that cannot be imported."""
        names = []
        for name in self.names():
            with suppress(ConfigError):
                names += [name] if fits(self.find(name)) else []
        return names

    def _fitting(self, thing: Any, name: str) -> Any:
        fits, wanted = callable(thing), "something to call"
        if self._base is not None:
            base, wanted = import_path(ClassPath(self._base), kind=self.kind), f"a subclass of {self._base}"
            fits = issubclass(thing, base) if isinstance(thing, type) else self._functions and fits
        if not fits:
            raise ConfigError(f"Expected {wanted} as {self.kind}, got {thing!r} for {name!r}; name another one.")
        return thing


READERS = Registry(
    "reader",
    {
        # Kinds of input, tried from the last row to the first.
        "folder": "midam.data.sources.folder.FolderReader",
        "table": "midam.data.sources.table_readers.TableReader",
        "manifest": "midam.data.sources.table_readers.ManifestReader",
        "archive": "midam.data.sources.npz.ArchiveReader",
        "store": "midam.data.sources.stored.StoreReader",
        "relabeled-store": "midam.data.sources.stored.RelabeledStoreReader",
        "catalog": "midam.data.sources.stored.CatalogReader",
        # Formats of one bag's file; if a folder holds several, the first row is read.
        "hdf5": "midam.data.sources.formats.datasets.Hdf5Reader",
        "tensor": "midam.data.sources.formats.npy.TensorReader",
        "zarr": "midam.data.sources.formats.datasets.ZarrReader",
        "npy": "midam.data.sources.formats.npy.NpyReader",
        "npz": "midam.data.sources.formats.npy.NpzReader",
        "slide": "midam.data.sources.formats.slides.SlideReader",
        "image": "midam.data.sources.formats.images.ImageReader",
        "tiff": "midam.data.sources.formats.slides.TiffReader",
        "nifti": "midam.data.sources.formats.volumes.NiftiReader",
        "dicom": "midam.data.sources.formats.dicom.DicomReader",
        "csv": "midam.data.sources.formats.npy.CsvReader",
    },
    base="midam.data.sources.reader.Reader",
)


def no_import(path: str, kind: str, why: str) -> ConfigError:
    """Return the error about a class path that cannot be imported."""
    return ConfigError(
        f"Expected a class path that can be imported as {kind}, got {path!r} ({why}); install its package, put the "
        "folder of its file on PYTHONPATH, or correct the path."
    )


def import_path(path: ClassPath, *, kind: str) -> Any:
    """Import the object at a class path; raise a `ConfigError` for a missing module, or a missing name in it."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module of another package may raise any error
        absent = isinstance(error, ModuleNotFoundError) and error.name == module_name
        missing = f"no module {module_name!r}" if absent else f"{type(error).__name__}: {error}"
        raise no_import(path, kind, missing) from None
    if not hasattr(module, name):
        public = [key for key in dir(module) if not key.startswith("_")]
        missing = f"{module_name} has no {name!r}: {nearest(name, public)}"
        raise ConfigError(f"Expected a class path as {kind}, got {path!r}; {missing}")
    return getattr(module, name)


def build(make: Callable[..., Any], *, part: str, offered: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Call a class or function with arguments by the names of its parameters; `part` is its name in messages.

    It gets the values of `offered` (settings, sizes, seeds) that are its parameters, and must take all `arguments`,
    which take precedence. A `ConfigError` is raised if an argument is not a parameter, or a parameter has no value.

    Examples
    --------
    >>> build(lambda *, tau, n=1: (tau, n), part="it", offered={"tau": 0.1, "seed": 5}, arguments={"n": 2})
    (0.1, 2)
    """
    parameters = inspect.signature(make).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in arguments:
        if name not in parameters and not takes_all:
            raise ConfigError(f"Expected arguments of {part}, got {name!r}; {nearest(name, parameters)}")
    given = {name: value for name, value in offered.items() if name in parameters} | dict(arguments)
    for name, parameter in parameters.items():
        named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if named and parameter.default is parameter.empty and name not in given:
            raise ConfigError(f"Expected the argument {name!r} of {part}, got none; give it.")
    return make(**given)


@cache
def _plugins(kind: str) -> dict[str, EntryPoint]:
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {name.removeprefix(f"{kind}."): point for name, point in points.items() if name.startswith(f"{kind}.")}


POOLINGS = Registry(
    "pooling",
    {
        "attention": "midam.nn.pooling.attention.AttentionPooling",
        "gated-attention": "midam.nn.pooling.attention.GatedAttentionPooling",
        "embedding-attention": "midam.nn.pooling.attention.EmbeddingAttentionPooling",
        "smoothed-max": "midam.nn.pooling.maximum.SmoothedMaxPooling",
        "mean": "midam.nn.pooling.mean.MeanPooling",
        "max": "midam.nn.pooling.maximum.MaxPooling",
        "generalized-mean": "midam.nn.pooling.mean.GeneralizedMeanPooling",
        "noisy-or": "midam.nn.pooling.mean.NoisyOrPooling",
        "noisy-and": "midam.nn.pooling.mean.NoisyAndPooling",
    },
    base="midam.nn.pooling.base.Pooling",
)
ESTIMATORS = Registry(
    "estimator",
    {
        "vrsp": "midam.train.estimators.VarianceReduced",
        "vrsp-printed": "midam.train.estimators.AsPrinted",
        "minibatch": "midam.train.estimators.MiniBatch",
        "exact": "midam.train.exact.Exact",
        "exact-point": "midam.train.exact.ExactPoint",
    },
    base="midam.train.estimators.Estimator",
)
OBJECTIVES = Registry(
    "objective",
    {
        "minmax-auc": "midam.nn.objectives.MinMaxAUCLoss",
        "pairwise": "midam.nn.objectives.PairwiseAUCLoss",
        "bce": "midam.nn.objectives.BCELoss",
        "partial-auc": "midam.nn.partial_auc.PartialAUCLoss",
        "average-precision": "midam.nn.partial_auc.AveragePrecisionLoss",
        "cross-entropy": "midam.nn.objectives.CrossEntropyLoss",
        "cox": "midam.nn.objectives.CoxLoss",
    },
    base="midam.nn.objectives.Objective",
)
TARGETS = Registry(
    "target",
    {
        "binary": "midam.targets.binary.Binary",
        "multiclass": "midam.targets.columns.Multiclass",
        "multilabel": "midam.targets.columns.Multilabel",
        "ordinal": "midam.targets.ranked.Ordinal",
        "continuous": "midam.targets.ranked.Continuous",
        "survival": "midam.targets.survival.Survival",
    },
    base="midam.targets.base.Target",
    paths=False,  # how labels are read depends on the target, see `midam.data.sources.label_columns`
)
DRAWS = Registry(
    "draw", {"uniform": "midam.data.draws.Uniform", "top": "midam.data.draws.Top"}, base="midam.data.draws.Draw"
)
FINE_TUNED = "fine-tuned"
ENCODERS = Registry(
    "encoder",
    {
        "mlp": "midam.nn.encoders.mlp.MLP",
        "resnet20": "midam.nn.encoders.images.resnet20",
        "resnet20-3d": "midam.nn.encoders.images.resnet20_3d",
        FINE_TUNED: "midam.embed.others.FineTuned",
    },
    base="torch.nn.Module",
    functions=True,
)
# Frozen networks; a name that ends with a colon takes the text after it. Class paths belong to ENCODERS.
NETWORKS = Registry(
    "network",
    {
        "efficientnet-lite0": "midam.embed.lite0.EfficientNetLite0",
        "hf:": "midam.embed.others.TransformersNetwork",
        "timm:": "midam.embed.others.TimmNetwork",
        "onnx:": "midam.embed.others.OnnxNetwork",
    },
    base="midam.embed.network.Network",
    paths=False,
)


def is_network(name: str) -> bool:
    """Return whether a name is one of `NETWORKS`, or begins with a name that takes the text after it."""
    return any(name == known or (known.endswith(":") and name.startswith(known)) for known in NETWORKS.names())


BASELINES = Registry(
    "baseline",
    {
        "auto": "midam.compare.auto.method.Auto",
        "bag-statistics-extratrees": "midam.compare.baselines.BagStatisticsTrees",
        "bag-statistics-logistic": "midam.compare.baselines.BagStatisticsLogistic",
        "bag-statistics-ridge": "midam.compare.baselines.BagStatisticsRidge",
        "bag-statistics-cox": "midam.compare.baselines.BagStatisticsCox",
        "mean-map-svm": "midam.compare.baselines.MeanMapSVM",
        "mi-kernel-svm": "midam.compare.baselines.SetKernelSVM",
        "instance-logistic-max": "midam.compare.baselines.InstanceLogisticMax",
        "rgb-logistic": "midam.compare.baselines.ColorLogistic",
        "rgb-trees": "midam.compare.baselines.ColorTrees",
        "patch-statistics-extratrees": "midam.compare.baselines.PatchStatisticsTrees",
        "voxel-logistic": "midam.compare.baselines.VoxelLogistic",
    },
    base="midam.compare.baselines.Baseline",
)
LOGGERS = Registry(
    "logger",
    {
        "tensorboard": "midam.runs.loggers.tensorboard",
    },
    base="lightning_fabric.loggers.logger.Logger",
    functions=True,
)
METRICS = Registry(
    "metric",
    {
        "auroc": "midam.evaluate.ranking.auroc",
        "auprc": "midam.evaluate.metrics.auprc",
        "sensitivity": "midam.evaluate.metrics.sensitivity",
        "specificity": "midam.evaluate.metrics.specificity",
        "balanced_accuracy": "midam.evaluate.metrics.balanced_accuracy",
        "f1": "midam.evaluate.metrics.f1",
        "brier": "midam.evaluate.metrics.brier",
    },
)
