"""One self-contained HTML page about a run, an evaluation or a comparison: no network, no script needed to read it."""
