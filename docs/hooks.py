"""What mkdocs runs while it builds the site: the API pages, from what the packages export.

A line ``<!-- exported: PACKAGE -->`` on a page becomes a table of the names in the package's `__all__`, and below it
the documentation of each; with ``table only`` behind the package, the table alone. ``<!-- settings -->`` becomes the
tables of the settings, ``<!-- commands -->`` a section for each command, with its help and its options that are no
settings, and ``<!-- reading -->`` the table of options that several commands share. ``<!-- catalog: KIND -->`` becomes
a table of the data sets, of vectors or of images. So a page cannot fall behind the code.

Records lie outside the site. A page links to them by their path in the repository, so that the link works there too. On
the site a record is an address at the repository, and its picture is copied into `figures/records`.
"""

import html
import importlib
import inspect
import json
import re
from collections.abc import Iterable
from itertools import groupby, zip_longest
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import griffe
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from midam.cli.app import COMMANDS
from midam.cli.predict import TABLES
from midam.report.describe import PLURALS
from midam.settings.settings import Description, describe_settings, groups

_EXPORTED = re.compile(r"^<!-- exported: ([\w.]+)( table only)? -->$", re.MULTILINE)
# Words of code that have the color of text anyway.
_PLAIN = re.compile(r'<span class="(?:n|p|o|w)">([^<]*)</span>')
# Names of types, and links to them, that say once more in a tooltip what they are.
_TITLED = re.compile(r'<span title="[^"]*">([^<]*)</span>|(?<=<a) class="autorefs autorefs-internal" title="[^"]*"')
# Classes of an API page that no style sheet of the theme names.
_UNSTYLED = re.compile(
    r' doc-(?:object doc-)?(?:function|class|attribute|module)(?:-name)?(?=")| class="doc-section-item field-body"'
)
# A cell with a number, an interval or a few words, as against one with a sentence.
_FIGURE = re.compile(r'<td( style="text-align: right;">[^<]{1,32}</td>)')
# On a phone a picture is small: a tap shows it alone, to be enlarged.
_PICTURE = re.compile(r'(<img [^>]*src="([^"]+)"[^>]*>)')
# An option with a short value, which no line may break at its hyphens.
_OPTION = re.compile(r"<code>(--?[a-zA-Z][^<]{0,24})</code>")
# A link to a record or to its picture: the way up to the docs, one up to the repository, the file, an anchor.
_RECORD = re.compile(r"(?<=\]\()((?:\.\./)*)\.\./records/([\w.-]+)((?:#[\w-]+)?\))")
_RECORDS = Path(__file__).parents[1] / "records"
_CATALOG = re.compile(r"^<!-- catalog: (vectors|images) -->$", re.MULTILINE)
# Options that several commands share, and these commands.
_READING, _READERS = {*TABLES}, ("predict", "evaluate", "explain", "check", "report")
_ABOUT: dict[str, str] = {}  # of each page's address: its title and its first sentence


class Exported(NamedTuple):
    """A name that a package exports."""

    name: str
    path: str  # Where it is defined, which is where its documentation is found
    text: str  # First line of its docstring


def on_files(files: Files, *, config: Any) -> None:
    """Add the pictures of the records to the site."""
    for path in _RECORDS.glob("*.png"):
        files.append(File.generated(config, f"figures/records/{path.name}", abs_src_path=str(path)))


def linked(markdown: str, repository: str) -> str:
    """Return a page whose links to records lead to the repository, and whose pictures of records to their copies.

    Examples
    --------
    >>> linked("![x](../../records/a.png) [y](../records/b.md#c)", "https://e")
    '![x](../figures/records/a.png) [y](https://e/blob/HEAD/records/b.md#c)'
    """

    def target(found: re.Match[str]) -> str:
        up, name, rest = found.groups()
        return (f"{up}figures/records/" if name.endswith(".png") else f"{repository}/blob/HEAD/records/") + name + rest

    return _RECORD.sub(target, markdown)


def on_page_markdown(markdown: str, *, config: Any = None, **_: Any) -> str:
    """Fill in what the marked lines of a page stand for, and lead links out of the site."""
    filled = linked(markdown, config["repo_url"]) if config else markdown
    filled = _EXPORTED.sub(lambda found: documented(found[1], whole=not found[2]), filled)
    filled = _CATALOG.sub(lambda found: catalog(images=found[1] == "images"), filled)
    if "<!-- reading -->" in filled:
        filled = filled.replace("<!-- reading -->", _table(one for one in _own("predict") if one[0] in _READING))
    if "<!-- commands -->" in filled:
        filled = filled.replace("<!-- commands -->", "\n\n".join(command(name) for name in COMMANDS))
    return filled.replace("<!-- settings -->", settings()) if "<!-- settings -->" in filled else filled


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Keep numbers of tables and options on one line, link a picture to its file, leave methods out of the contents."""
    first = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", "", first[1] if first else "").split())
    _ABOUT[page.canonical_url or page.url] = f"{page.title}: {text.partition('. ')[0].rstrip('.:')}"
    if page.file.src_uri.startswith("api"):
        for name in (name for top in page.toc for package in top.children for name in package.children):
            name.children.clear()
    html = _OPTION.sub(r'<code class="option">\1</code>', _PICTURE.sub(r'<a href="\2">\1</a>', html))
    return _FIGURE.sub(r'<td class="figure"\1', html)


def on_post_build(*, config: Any) -> None:
    """Write llms.txt, a list of the pages for programs that read for people."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    lines += [f"- [{about.partition(': ')[0]}]({url}): {about.partition(': ')[2]}" for url, about in _ABOUT.items()]
    (Path(config["site_dir"]) / "llms.txt").write_text(html.unescape("\n".join(lines)) + "\n", encoding="utf-8")


def on_post_page(output: str, **_: Any) -> str:
    """Leave out the white space between tags and what colors nothing: half of an API page as the templates write it."""
    parts = re.split(r"(<pre.*?</pre>|<script.*?</script>)", output, flags=re.DOTALL)
    squeezed = [_UNSTYLED.sub("", _TITLED.sub(r"\1", re.sub(r"\s*\n\s*", "\n", part))) for part in parts[::2]]
    kept = [_PLAIN.sub(r"\1", part) for part in parts[1::2]]
    return "".join(part for pair in zip_longest(squeezed, kept, fillvalue="") for part in pair)


def exported(package: str) -> list[Exported]:
    """Names that a package exports; of a module without `__all__` its own public classes, functions and tables."""
    module = importlib.import_module(package)
    own = [name for name, value in vars(module).items() if name[0] != "_" and _made_in(value, package)]
    return [_describe(package, name, getattr(module, name)) for name in getattr(module, "__all__", own)]


def documented(package: str, *, whole: bool = True) -> str:
    """Markdown of the names that a package exports."""
    found = exported(package)
    rows = [f"| [`{one.name}`][{one.path}] | {one.text} |" for one in found]
    # What another package defines is documented there.
    blocks = [f"::: {one.path}" for one in found if whole and one.path.startswith(f"{package}.")]
    return "\n".join(["| name | what it is |", "|---|---|", *rows, "", *(f"{block}\n" for block in blocks)])


def settings() -> str:
    """Markdown of all settings, a table a group."""
    lines = []
    for group, (title, kind) in groups().items():
        lines += [f"#### {group.capitalize()} {{#{kind.__module__}.{kind.__name__}}}", "", title, ""]
        lines += ["| option | values | default | meaning |", "|---|---|---|---|"]
        for one in describe_settings():
            if one.group == group:
                default = one.default if isinstance(one.default, str) else json.dumps(one.default)
                lines.append(f"| `{_flag(one.name)}` | {_values(one)} | `{default}` | {_cell(one.text)} |")
        lines.append("")
    return "\n".join(lines)


def catalog(*, images: bool) -> str:
    """Markdown of the data sets of a kind, a row each."""
    sets = importlib.import_module("studies.sets.catalog")

    lines = ["| name | what | size | source; license |", "|---|---|---|---|"]
    for name, one in sets.CATALOG.items():
        if isinstance(one, sets.ImageSet) == images:
            entry = sets.describe(name)
            labels = f"{one.positives} +"
            if entry["target"] != "binary":
                labels = _label_words(entry["target"], entry["names"], entry["counts"])
            shape = f"of {one.features}" if images else f"{one.features} features"
            instances = f"{one.instances} instances ({one.instances / one.bags:.1f} a bag)"
            size = f"{one.bags} bags ({labels}), {instances}, {shape}"
            source = f"[{_brief(one.citation)}]({one.url})" if one.url else _brief(one.citation)
            lines.append(f"| `{name}` | {_cell(one.description)} | {size} | {_cell(source)}; {one.license} |")
    return "\n".join(lines)


def _label_words(target: str, names: list[str], counts: list[int]) -> str:
    """Return the kind of labels in two words; for survival, `counts` begins with the number of events."""
    if target in PLURALS:
        return f"{len(names)} {PLURALS[target]}"
    return f"{counts[0]} events" if target == "survival" else "numbers"


def _brief(citation: str) -> str:
    """First author and year, or what else a citation ends with, of "Silva, Moody: Title, CinC 2012"."""
    authors, _, rest = citation.partition(": ")
    first, *others = authors.split(", ")
    return f"{first}{' et al.' if others else ''}, {rest.rpartition(', ')[2]}"


def command(name: str) -> str:
    """Markdown of a command: how it is called, the text of its help, its options that are no settings."""
    actions = [f"{name} {action}" for action in _actions(_parser(name))]
    sections = [f"## midam {name}", *(_called(one) for one in actions or [name])]
    return "\n\n".join(sections)


def _called(command: str) -> str:
    parser, rows = _parser(command), _own(command)
    parser.format_help()  # which writes the usage
    own = [one for one in rows if command not in _READERS or one[0] not in _READING]
    words = " ".join(str(parser.description).split()).split("`")
    words[::2] = [re.sub(r"--[a-z-]+|~?/?<[A-Z]+>", r"`\g<0>`", part) for part in words[::2]]  # what is no code yet
    text = "`".join(words)
    return "\n\n".join([f"```text\n{parser.usage or f'midam {command}'}\n```", text, *([_table(own)] if own else [])])


def _parser(command: str) -> Any:
    name, _, action = command.partition(" ")
    parser = importlib.import_module(f"midam.cli.{name}").parser()
    if action:
        parser = _actions(parser)[action]
    parser.show_all()
    return parser


def _actions(parser: Any) -> dict[str, Any]:
    """Parsers of the actions of a command such as `midam data`."""
    return next((dict(one.choices) for one in parser._actions if isinstance(one.choices, dict)), {})


def _own(command: str) -> list[tuple[str, str, str]]:
    """Name, flag with its value, and help of each option of a command that is no setting."""
    parser = _parser(command)
    formatter, found = parser._get_formatter(), []
    for one in parser._optionals._group_actions:
        if one.dest not in ("help", "help_all", "plugin"):  # every command takes it: the page says so once
            value = "" if one.nargs == 0 else formatter._format_args(one, "")
            found.append((one.dest, f"{_flag(one.dest)} {value}".rstrip(), formatter._get_help_string(one)))
    return found


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [f"| `{_cell(flag)}` | {_cell(text[0].upper() + text[1:]).replace('%%', '%')} |" for _, flag, text in rows]
    return "\n".join(["| option | meaning |", "|---|---|", *lines])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _values(setting: Description) -> str:
    """Values that a setting takes."""
    if setting.known:
        names = ", ".join(f"`{name}`" for name in setting.known)
        return f"{'list of ' if get_origin(setting.kind) is list else ''}{names}"
    if get_origin(setting.kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(setting.kind))
    union = get_origin(setting.kind) in (UnionType, Union)
    return " or ".join(_word(part) for part in (get_args(setting.kind) if union else (setting.kind,)))


def _word(kind: Any) -> str:
    if kind is type(None):
        return "`null`"
    if get_origin(kind) is dict:
        return "dict"
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is list and get_origin(get_args(kind)[0]) is Literal:
        return f"list of {', '.join(f'`{value}`' for value in get_args(get_args(kind)[0]))}"
    return str(kind) if get_origin(kind) else str(kind.__name__)


class OwnDefaults(griffe.Extension):
    """Shows each parameter with its own default, also where several share a line or their choices are named."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Correct the docstring of a function, and of the class of a constructor, once the signature is whole."""
        self._correct(func)
        if func.name == "__init__" and func.parent is not None:
            self._correct(func.parent)

    def _correct(self, thing: griffe.Object) -> None:
        if any("takes_request" in str(one.value) for one in getattr(thing, "decorators", ())):
            thing.parameters = _at_run_time(getattr(importlib.import_module(thing.parent.path), thing.name))
        parameters = getattr(thing, "parameters", ())
        for section in thing.docstring.parsed if thing.docstring and parameters else ():
            if section.kind is griffe.DocstringSectionKind.parameters:
                for one in section.value:
                    one.value = parameters[one.name].default if one.name in parameters else one.value
                section.value = [_joined(list(group)) for _, group in groupby(section.value, _same_line)]


def _at_run_time(function: Any) -> griffe.Parameters:
    """Parameters of a function whose decorator gives it those of a request."""
    found = []
    for one in inspect.signature(function).parameters.values():
        plain = one.default is None or isinstance(one.default, str | int | tuple)
        default = repr(one.default) if plain else f"{type(one.default).__name__}()"
        default = None if one.default is inspect.Parameter.empty else default
        annotation = one.annotation.__name__ if isinstance(one.annotation, type) else str(one.annotation)
        kind = griffe.ParameterKind[one.kind.name.lower()]
        found.append(griffe.Parameter(one.name, annotation=annotation, kind=kind, default=default))
    return griffe.Parameters(*found)


def _same_line(parameter: griffe.DocstringParameter) -> tuple[str, bool]:
    return parameter.description, parameter.value is None


def _joined(group: list[griffe.DocstringParameter]) -> griffe.DocstringParameter:
    """Parameters that share a line of the docstring, with their defaults in the same order."""
    first = group[0]
    values = [str(one.value) for one in group]
    if first.value is not None:
        first.value = values[0] if len(set(values)) == 1 else ", ".join(values)
    first.name = ", ".join(one.name for one in group)
    return first


def _describe(package: str, name: str, value: Any) -> Exported:
    if isinstance(value, ModuleType):
        return Exported(name, value.__name__, _first_line(value))
    if inspect.isclass(value) or inspect.isfunction(value):
        return Exported(name, f"{value.__module__}.{value.__qualname__}", _first_line(value))
    kind = getattr(value, "kind", None)
    if kind:
        text = f"Table of each {kind} by name: {', '.join(f'`{row}`' for row in value.names())}."
    else:
        text = f"`{value!r}`" if isinstance(value, tuple | str | float | int) else f"A `{type(value).__name__}`."
    return Exported(name, f"{package}.{name}", _cell(text))


def _made_in(value: Any, package: str) -> bool:
    made = value.__module__ if inspect.isclass(value) or inspect.isfunction(value) else type(value).__module__
    return made == package


def _first_line(value: Any) -> str:
    return _cell((inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
