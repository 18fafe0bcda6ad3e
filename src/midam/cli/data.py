"""`midam data`: list, describe or fetch data."""

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from midam.cli.parser import Parser
from midam.data import catalog
from midam.errors import ConfigError, DataNotFoundError
from midam.report.terminal import bag_facts, print_catalog, print_description, stdout_console
from midam.runs.data import read_data
from midam.train.config import FitConfig


def parser() -> ArgumentParser:
    """Options of the command."""
    data = Parser(prog="midam data", allow_abbrev=False, description="List, describe or fetch data.")
    data.add_argument("action", choices=["list", "describe", "fetch"], help="what to do")
    data.add_argument("name", type=str | None, nargs="?", default=None, help="catalogue name, or a file for describe")
    return data


def run(options: Namespace, console: Console) -> int:  # noqa: ARG001
    """List, describe or fetch; returns the exit code."""
    if options.action == "list":
        print_catalog(stdout_console(), [catalog.describe(name) for name in catalog.names()])
        return 0
    if options.name is None:
        raise ConfigError(f"Expected a name, got none; names in the catalogue: {', '.join(catalog.names())}.")
    if options.action == "fetch":
        if options.name not in catalog.CATALOG:
            raise DataNotFoundError(
                f"Expected a name of the catalogue, got {options.name!r}; known are {', '.join(catalog.names())}."
            )
        bundled = catalog.CATALOG[options.name].url is None
        where = "comes with scikit-learn, nothing to fetch" if bundled else catalog.fetch(options.name)
        stdout_console().print(escape(f"{options.name}: {where}"))
        return 0
    bags = read_data(options.name, FitConfig())
    print_description(stdout_console(), options.name, bag_facts(options.name, bags), bags.sizes)
    return 0
