"""The settings of a run, with their defaults and ranges, for the command line, YAML files and Python.

`Settings` holds the values that the user gave; `Settings.resolve` fills in the defaults that depend on the shape of
instances. The command line, YAML files and checkpoints use flat names.
"""

from midam.settings.data import CutSettings, DataSettings
from midam.settings.method import MethodSettings, ModelSettings
from midam.settings.settings import ResolvedSettings, Settings, read_yaml, refuse_unknown, yaml_text
from midam.settings.training import RunSettings, TrainingSettings, member_seed, usual_chunk

__all__ = ["CutSettings", "DataSettings", "MethodSettings", "ModelSettings", "ResolvedSettings", "RunSettings"]
__all__ += ["Settings", "TrainingSettings", "member_seed", "read_yaml", "refuse_unknown", "usual_chunk", "yaml_text"]
