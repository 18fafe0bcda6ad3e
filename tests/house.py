"""Measure the package and the documentation: lines of code, imports in a circle or against the layers, pages, words.

`python -m tests.house` (`make size`) prints each count next to its limit, and fails above one. A change that needs more
raises the limit in a commit of its own that says why. `tests/unit/test_imports.py` tests the rules on imports.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "midam"

# What the files of a part may import, besides themselves. A part that is not listed fails: give it its place.
CORE = {
    *(
        "errors",
        "lazy_imports",
        "files",
        "names",
        "processes",
        "process_group",
        "reading",
        "registry",
        "settings",
    ),
    "_version",
}
BELOW_EVALUATE = CORE | {"functional", "nn", "data"}
BELOW_TRAIN = BELOW_EVALUATE | {"evaluate"}
BELOW_RUNS = BELOW_TRAIN | {"targets", "train", "methods", "report"}
TOP = BELOW_RUNS | {"runs"}
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "lazy_imports": set(),
    "functional": set(),
    "errors": set(),
    "names": {"errors"},
    "processes": {"errors"},
    "process_group": {"errors", "processes"},
    "registry": {"errors"},
    "reading": {"errors", "lazy_imports", "names"},
    "files": {"errors", "reading"},
    "settings": {"errors", "names", "reading", "registry"},
    "data": CORE | {"functional"},
    "nn": CORE | {"functional"},
    "evaluate": BELOW_EVALUATE,
    "targets": BELOW_TRAIN,
    "imaging": CORE | {"functional", "nn", "data"},  # `data` and `nn` reach it by their registries alone
    "train": BELOW_TRAIN | {"targets"},
    "report": BELOW_TRAIN | {"targets", "train"},
    "methods": BELOW_TRAIN | {"targets", "train"},
    "runs": BELOW_RUNS | {"imaging"},
    "explain": TOP | {"imaging"},
    "export": TOP,
    "compare": TOP,
    "sklearn": TOP | {"explain"},
    "cli": TOP | {"compare", "explain", "export", "imaging", "sklearn"},
    "__init__": TOP | {"sklearn", "export", "imaging"},
}
# Names of variables and parameters that do not say what they hold.
VAGUE = {"found", "own", "said", "told", "of", "how", "what", "beside"}
LONG = 30  # words of a sentence that asks for a second reading
FUNCTIONAL_MAY_USE = {"torch", "math", "typing", "collections"}


@dataclass(frozen=True)
class Limits:
    """The largest count that is accepted of each kind."""

    lines: int
    files: int
    function: int
    circles: int
    against_layers: int
    parameters: int
    vague: int
    pages: int
    words: int
    readme: int
    long: int


# Lines only fall: a part that grows makes room elsewhere in it, or says in a commit of its own why it needs more.
LIMITS = Limits(
    lines=27_994,
    files=224,
    function=60,
    circles=0,
    against_layers=0,
    parameters=10,
    vague=0,
    pages=29,
    words=28_000,
    readme=700,
    long=0,
)
# Lines of each part; "" are the single files.
PARTS = {
    "": 1190,
    "cli": 1447,
    "compare": 1134,
    "data": 6277,
    "evaluate": 1912,
    "explain": 1602,
    "export": 451,
    "functional": 467,
    "imaging": 1989,
    "methods": 1597,
    "nn": 1886,
    "report": 2095,
    "runs": 2120,
    "settings": 540,
    "sklearn": 922,
    "targets": 848,
    "train": 1517,
}


def part_of(path: Path) -> str:
    """Return `data` for `src/midam/data/bags.py` and `errors` for `src/midam/errors.py`."""
    return path.relative_to(SRC).with_suffix("").parts[0]


def module_of(path: Path) -> str:
    """Return `midam.data.bags` for `src/midam/data/bags.py`, and `midam.data` for its `__init__.py`."""
    return ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything imported, at any depth: `from a.b import c` gives `a.b.c`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ("." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names)


def wrong_imports(tree: ast.AST, part: str) -> list[str]:
    """Return the imports in a syntax tree that a file of `part` may not have."""
    wrong = []
    for name in imported_names(tree):
        package, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if package == "midam":
            if target != part and target not in ALLOWED[part]:
                wrong.append(name)
        elif package in ("", "studies") or (part == "functional" and package not in FUNCTIONAL_MAY_USE):
            wrong.append(name)
    return wrong


def vague_names(tree: ast.AST) -> int:
    """Count the variables of each function, and its parameters, whose name is in `VAGUE`.

    Examples
    --------
    >>> vague_names(ast.parse("def add(of): found = of; found += 1; return [own for own in found]"))
    3
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(len(VAGUE & _bound_names(node)) for node in functions)


def _bound_names(function: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue  # counted by itself
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        names |= _bound_names(node)
    return names


def code_lines(source: str, tree: ast.AST) -> set[int]:
    """Return the numbers of the lines that hold code: no docstrings, comments and blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            lines.update(range(token.start[0], token.end[0] + 1) if token.type != tokenize.ENDMARKER else ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files that import each other in a circle (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in imports:
            if name not in order:
                visit(name)
    finally:  # other tests count on the limit
        sys.setrecursionlimit(limit)
    return groups


def _file_of(name: str, modules: dict[str, Path]) -> str:
    """Return the module that `name` names or stands in; "" for those of others."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


@dataclass(frozen=True)
class House:
    """What was counted in the package."""

    lines: int
    parts: dict[str, tuple[int, int]]  # files and lines of each part, as `data`; "" for single files
    files: int
    function: tuple[int, str]
    circles: list[list[str]]
    against_layers: list[str]
    parameters: tuple[int, str]
    vague: tuple[int, str]  # variables with a name of `VAGUE`, and the file with most


def measure(root: Path = SRC) -> House:
    """Read each file below `root` and count."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    modules = {module_of(path): path for path in (*sources, *root.rglob("*.pyi"))}
    imports: dict[str, set[str]] = {module: set() for module in modules}
    parts: dict[str, tuple[int, int]] = {}
    wrong: list[str] = []
    longest, widest, vague = (0, ""), (0, ""), dict.fromkeys(modules, 0)
    for path, source in sources.items():
        tree, module = ast.parse(source), module_of(path)
        code = code_lines(source, tree)
        part = part_of(path) if path.parent != root else ""
        parts[part] = (parts.get(part, (0, 0))[0] + 1, parts.get(part, (0, 0))[1] + len(code))
        wrong += [f"{module}: {name}" for name in wrong_imports(tree, part_of(path))]
        vague[module] = vague_names(tree)
        imports[module] = {_file_of(name, modules) for name in imported_names(tree)} - {"", module}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = len(code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                longest = max(longest, (own, f"{module}.{node.name}"))
                widest = max(widest, (len(arguments), f"{module}.{node.name}"))
    return House(
        sum(lines for _, lines in parts.values()),
        parts,
        len(sources),
        longest,
        circles(imports),
        wrong,
        widest,
        (sum(vague.values()), max(vague, key=vague.__getitem__)),
    )


@dataclass(frozen=True)
class Words:
    """What was counted in the documentation."""

    pages: int
    words: int  # of what people wrote and commands printed, but for code
    readme: int
    long: tuple[int, str]  # sentences above 30 words on the pages that people wrote, and the page with most


def prose(page: str) -> str:
    """Return a page without its code, comments, tables, pictures and the addresses of its links."""
    text = re.sub(r"^ *```.*?^ *```$|^---$.*?^---$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\|.*$|^!\[.*?\]\(.*?\)$", "", text, flags=re.MULTILINE)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(page: str) -> list[str]:
    """Return the sentences of a page, and the entries of its lists."""
    parts = re.split(r"\n\s*\n|^ *(?:[-*]|\d+\.) |^#.*$|(?<=[.!?:])[*)]*\s", prose(page), flags=re.MULTILINE)
    return [part for part in parts if len(part.split()) > 2]


def measure_words(root: Path = ROOT) -> Words:
    """Read README and each page of the site, and count."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted((root / "docs").rglob("*.md"))}
    words = sum(
        len(re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL).split()) for page in pages.values()
    )
    written = {path: page for path, page in pages.items() if "api" not in path.relative_to(root).parts}
    long = {
        str(path.relative_to(root)): sum(len(own.split()) > LONG for own in sentences(page))
        for path, page in written.items()
    }
    readme = len((root / "README.md").read_text(encoding="utf-8").partition("```bibtex")[0].split())
    return Words(len(pages), words, readme, (sum(long.values()), max(long, key=long.__getitem__)))


def main() -> int:
    """Print each count next to its limit; return 1 where one is above."""
    house, words = measure(), measure_words()
    rows = [
        ("lines of code", house.lines, LIMITS.lines, ""),
        ("files", house.files, LIMITS.files, ""),
        ("lines of the longest function", house.function[0], LIMITS.function, house.function[1]),
        ("circles of imports", len(house.circles), LIMITS.circles, "; ".join(map(" ".join, house.circles))),
        (
            "imports against the layers",
            len(house.against_layers),
            LIMITS.against_layers,
            "; ".join(house.against_layers),
        ),
        ("parameters of the widest signature", house.parameters[0], LIMITS.parameters, house.parameters[1]),
        ("variables with vague names", house.vague[0], LIMITS.vague, house.vague[1]),
        ("pages of the documentation", words.pages, LIMITS.pages, ""),
        ("words of the documentation", words.words, LIMITS.words, ""),
        ("words of the README", words.readme, LIMITS.readme, ""),
        ("sentences above 30 words", words.long[0], LIMITS.long, words.long[1]),
    ]
    rows += [
        (f"lines of {part or 'single files'}", lines, PARTS.get(part, 0), f"{files} files")
        for part, (files, lines) in sorted(house.parts.items(), key=lambda part: -part[1][1])
    ]
    for what, count, limit, where in rows:
        mark = "ABOVE" if count > limit else ""
        sys.stdout.write(f"{what:36}{count:8}  limit {limit:7}  {mark:7}{where}".rstrip() + "\n")
    return int(any(count > limit for _, count, limit, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
