"""The extension points: classes and functions by name, of midam or of plug-ins.

A row is ``name: "package.module.Object"``; an object is imported when it is first needed. A plug-in is a module that
adds names when it is imported, ``POOLINGS.add("trimmed-mean", TrimmedMean)``: the user imports it in Python, or names
it with ``--plugin``.

A text from a file or a command line is looked up and never imported.
"""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from midam.errors import ConfigError, MidamError, nearest

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class NamedPart:
    """Base whose subclasses have a `name`: the one that the class sets itself, else the name of the class."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__dict__.get("name", cls.__name__)


_ALL: list["Registry"] = []


class Registry:
    """Names of one `kind` of object, as named in messages; `rows` hold the class paths of midam.

    All classes must subclass `base`, a class path; without `base`, any callable is accepted. With `functions`,
    functions that return an instance are accepted too.

    Examples
    --------
    >>> from collections import Counter
    >>> shapes = Registry("shape", {"ordered": "collections.OrderedDict"}, base="builtins.dict")
    >>> shapes.add("counter", Counter)
    >>> shapes.find("ordered").__name__, shapes.find("counter").__name__
    ('OrderedDict', 'Counter')
    >>> shapes.check("orderd")
    Traceback (most recent call last):
    ...
    midam.errors.ConfigError: Expected a known shape, got 'orderd'; did you mean 'ordered'?
    """

    def __init__(self, kind: str, rows: Mapping[str, str], *, base: str | None = None, functions: bool = False) -> None:
        self.kind = kind
        self.own = tuple(rows)  # names of midam
        self._rows = dict(rows)
        self._added: dict[str, Any] = {}
        self._modules: dict[str, str] = {}
        self._base = base
        self._functions = functions
        _ALL.append(self)

    def names(self) -> list[str]:
        """Return all names: those of midam, and added names."""
        return [*self._rows, *self._added]

    def add(self, name: str, thing: Any) -> None:
        """Register a class or function under `name` in this process; raise a `ConfigError` if either is unsuitable.

        A run that uses the name keeps the name of the calling module, for the message where the module is missing.
        """
        if name in self._rows or name in self._added:
            raise ConfigError(f"Expected a new {self.kind} name, got {name!r}, which is taken; choose another.")
        self._added[name] = self._fitting(thing, name)
        module = sys._getframe(1).f_globals.get("__name__", "__main__")
        if module != "__main__":  # a script is no module that can be imported elsewhere
            self._modules[name] = module

    def remove(self, name: str) -> None:
        """Remove a name that was added."""
        del self._added[name]
        self._modules.pop(name, None)

    def module(self, name: str) -> str | None:
        """Return the module that added a name; None if it is not known."""
        return self._modules.get(name) if name in self._added else None

    def check(self, name: str) -> None:
        """Refuse an unknown name, and suggest the nearest."""
        if name not in self.names():
            raise self.unknown(name)

    def unknown(self, name: str, also: Iterable[str] = ()) -> ConfigError:
        """Return the error about an unknown name; those in `also` are suggested too."""
        return ConfigError(f"Expected a known {self.kind}, got {name!r}; {nearest(name, [*self.names(), *also])}")

    def find(self, name: str) -> Any:
        """Find the object of a name; raise a `ConfigError` if it is unknown."""
        self.check(name)
        return self._added[name] if name in self._added else _imported(self._rows[name])

    def where(self, fits: Callable[[Any], bool]) -> list[str]:
        """Return the names of the objects that `fits` accepts."""
        return [name for name in self.names() if fits(self.find(name))]

    def _fitting(self, thing: Any, name: str) -> Any:
        fits, wanted = callable(thing), "something to call"
        if self._base is not None:
            base, wanted = _imported(self._base), f"a subclass of {self._base}"
            fits = issubclass(thing, base) if isinstance(thing, type) else self._functions and fits
        if not fits:
            raise ConfigError(f"Expected {wanted} as {self.kind}, got {thing!r} for {name!r}; name another one.")
        return thing


READERS = Registry(
    "reader",
    {
        # Formats of one bag's file; if a folder holds several, the first row is read.
        "hdf5": "midam.data.sources.formats.datasets.Hdf5Reader",
        "tensor": "midam.data.sources.formats.npy.TensorReader",
        "zarr": "midam.data.sources.formats.datasets.ZarrReader",
        "npy": "midam.imaging.volumes.NpyVolumeReader",
        "npz": "midam.imaging.volumes.NpzVolumeReader",
        "slide": "midam.imaging.slides.SlideReader",
        "image": "midam.imaging.images.ImageReader",
        "tiff": "midam.imaging.slides.TiffReader",
        "nifti": "midam.imaging.volumes.NiftiReader",
        "dicom": "midam.imaging.dicom.DicomReader",
        "csv": "midam.data.sources.formats.npy.CsvReader",
        # Kinds of input, tried from the last row to the first; `midam.data.sources.table_files` has formats of tables.
        "folder": "midam.data.sources.folder.FolderReader",
        "table": "midam.data.sources.inputs.TableReader",
        "manifest": "midam.data.sources.inputs.ManifestReader",
        "archive": "midam.data.sources.inputs.ArchiveReader",
        "store": "midam.data.sources.inputs.StoreReader",
        "relabeled-store": "midam.data.sources.inputs.RelabeledStoreReader",
        "digits": "midam.data.sources.inputs.DigitsReader",
    },
    base="midam.data.sources.file_names.Reader",
)


def load_plugins(modules: Iterable[str]) -> None:
    """Import the modules of plug-ins, which add names; raise a `ConfigError` for one that cannot be imported."""
    for name in modules:
        try:
            importlib.import_module(name)
        except MidamError:
            raise
        except Exception as error:  # a module of another package may raise any error
            absent = isinstance(error, ModuleNotFoundError) and error.name == name
            reason = "no such module" if absent else f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"Expected a module that can be imported as plug-in, got {name!r} ({reason}); install its package, put "
                "the folder of its file on PYTHONPATH, or correct the name."
            ) from None


def loaded_plugins() -> list[str]:
    """Return the modules that added names in this process, in order, for other processes to load."""
    return list(dict.fromkeys(filter(None, (registry.module(name) for registry in _ALL for name in registry.names()))))


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


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
)
FINE_TUNED = "fine-tuned"
ENCODERS = Registry(
    "encoder",
    {
        "mlp": "midam.nn.encoders.mlp.MLP",
        "resnet20": "midam.nn.encoders.images.resnet20",
        "resnet20-3d": "midam.nn.encoders.images.resnet20_3d",
        FINE_TUNED: "midam.imaging.networks.FineTuned",
    },
    base="torch.nn.Module",
    functions=True,
)
# Frozen networks; a name that ends with a colon takes the text after it. Modules of plug-ins belong to ENCODERS.
NETWORKS = Registry(
    "network",
    {
        "efficientnet-lite0": "midam.imaging.networks.EfficientNetLite0",
        "hf:": "midam.imaging.networks.TransformersNetwork",
    },
    base="midam.imaging.network.Network",
)


def is_network(name: str) -> bool:
    """Return whether a name is one of `NETWORKS`, or begins with a name that takes the text after it."""
    return any(name == known or (known.endswith(":") and name.startswith(known)) for known in NETWORKS.names())


BASELINES = Registry(
    "baseline",
    {
        "auto": "midam.methods.auto.method.Auto",
        "bag-statistics-extratrees": "midam.methods.baselines.BagStatisticsTrees",
        "bag-statistics-logistic": "midam.methods.baselines.BagStatisticsLogistic",
        "bag-statistics-cox": "midam.methods.baselines.BagStatisticsCox",
        "mean-map-svm": "midam.methods.baselines.MeanMapSVM",
        "embedding-networks": "midam.methods.networks.EmbeddingNetworks",
        "witness-search": "midam.methods.witness_search.WitnessSearch",
        "rgb-logistic": "midam.methods.baselines.ColorLogistic",
        "rgb-trees": "midam.methods.baselines.ColorTrees",
        "patch-statistics-extratrees": "midam.methods.baselines.PatchStatisticsTrees",
    },
    base="midam.methods.method.Baseline",
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
# Entries of a file that hold names of `Registry`: settings of a run, its method, and its network.
NAMED = ("pooling", "estimator", "objective", "encoder", "encoder_args", "logger", "reader", "method", "network")


def take_known(values: Mapping[str, Any], source: object) -> dict[str, Any]:
    """Return the entries of a file without `plugins`; refuse a plug-in in it that is not loaded."""
    modules = values.get("plugins") or {}
    if not isinstance(modules, dict) or not all(_MODULE.fullmatch(str(module)) for module in modules.values()):
        raise ConfigError(
            f"Expected `plugins` as names and their modules, got {modules!r} (in {source}); leave it out."
        )
    for name, module in modules.items():
        if not any(name in registry.names() for registry in _ALL):
            raise ConfigError(
                f"Expected a known name, got {name!r} (in {source}), which the plug-in {module} adds; pass --plugin "
                f"{module}, or import it in Python."
            )
    return {key: value for key, value in values.items() if key != "plugins"}


def plugin_entry(values: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the entry `plugins` of a file with these entries: the module of each name in them that a plug-in added."""
    words = set(re.split(r'[+"]', json.dumps([values.get(entry) for entry in NAMED], ensure_ascii=False, default=str)))
    modules = {name: registry.module(name) for registry in _ALL for name in registry.names() if name in words}
    added = {name: module for name, module in sorted(modules.items()) if module is not None}
    return {"plugins": added} if added else {}
