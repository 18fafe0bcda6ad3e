"""`midam export`: write a run as a folder with which others score bags without midam."""

from rich.console import Console
from rich.markup import escape

from midam.cli.parser import Options, Parser, words
from midam.report.program import note_result, say


def parser() -> Parser:
    """Return the parser of the command."""
    text = "Write a run as a folder for others: a model card, weights, and programs for torch or onnxruntime."
    export = Parser("export", text)
    export.add_argument("run", help="run folder")
    export.add_argument("--out", required=True, metavar="FOLDER", help="new folder for the export")
    known = "safetensors, torch, onnx, separated by commas; default: all that this run can have"
    export.add_argument("--format", default="", metavar="A,B,...", help=known)
    return export


def run(options: Options, console: Console) -> int:
    """Export a run; returns the exit code."""
    from midam.export import export_run

    console.print(f"exporting {escape(options.run)}: a few seconds, or a minute for large models")
    formats = words(options.format)
    written = export_run(options.run, options.out, formats=formats)
    note_result(folder=options.out, formats=list(written))
    say(f"exported as {', '.join(written)}: {options.out} (read README.md there first)")
    return 0
