"""Settings as the trainer takes them."""

import dataclasses

from midam.errors import ConfigError
from midam.settings import Settings
from midam.train.config import FitConfig


def as_config(settings: Settings) -> FitConfig:
    """The same settings for `midam.train`."""
    known = {field.name for field in dataclasses.fields(FitConfig)}
    usual = Settings().flat()
    for name, value in settings.flat().items():
        if name not in known and value != usual[name]:
            raise ConfigError(f"Expected no {name} yet, got {value!r}; leave it out.")
    values = {name: value for name, value in settings.flat().items() if name in known}
    lists = {name: values[name] or [] for name in ("window", "volume_size")}
    return FitConfig(**values | lists | {"threads": values["threads"] or None})
