"""Train on six sets in which the witnesses are known, and write the page of the gallery with its pictures.

Run `PYTHONPATH=. python docs/figures/gallery.py` from the repository's root, with MIDAM_DATA at the folder of the data:
about half an hour on two cores. It writes `docs/gallery.md`, and a picture of each set next to this file. With names of
sets behind it, it writes these again and leaves the others. Data and runs stay in `runs/gallery`.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parent))
from gallery_sets import Witnesses, witnesses_of

import midam
from midam.cli import main as command
from midam.data.bags import Bags
from midam.explain import explain_bag
from midam.runs.apply import read_for

HERE = Path(__file__).parent
PAGE = HERE.with_name("gallery.md")
_WIDTH = 1100  # pixels of a picture
_INTRODUCTION = """# Gallery

Six sets in which it is known which instances make a bag positive: the witnesses. No model is told. Each picture
explains, of the positive bags that the model has not seen, the one whose witness adds most. AUROC is that of the bags,
with its 95% interval. **Instance AUROC** is the mean over positive bags of the AUROC of what each instance adds,
witnesses against the others: .5 is a guess, 1 is right in every bag. `PYTHONPATH=. python docs/figures/gallery.py`
writes this page, and `python docs/figures/gallery_sets.py machines .` the data of a section: `digits`, `scan`,
`mammography`, `tissue`, `customers` or `machines`. Files need the extras `medical,images,pretrained`.
"""
_PYTHON = """import json

import midam
from midam.explain import explain_bag
from sklearn.metrics import roc_auc_score

run, bags = midam.load_run("runs/digits"), midam.read_bags("digits.npz")
bag, (nine,) = list(json.load(open("witnesses_digits.json")).items())[-1]
added = explain_bag(run.model, bags, bags.ids.tolist().index(bag)).contribution
print(bag, nine, added.round(3), roc_auc_score([i == nine for i in range(10)], added))
"""


@dataclass(frozen=True)
class Shown:
    """A set of the gallery: its title, what bags and witnesses are, its source, the data and options as typed."""

    title: str
    text: str
    source: str
    data: str
    options: str
    new: str = ""  # other data, of bags that were not trained on
    python: str = ""


SETS = {
    "digits": Shown(
        "One nine among ten digits",
        "A bag of ten handwritten digits is positive if there is a nine among them.",
        "MNIST (LeCun et al., 1998), 6000 digits in 600 bags",
        "digits.npz",
        "--method midam --folds 0 --num-instances 4",
        python=_PYTHON,
    ),
    "scan": Shown(
        "The slice of a scan",
        "A head of 22 slices, of which one shows a bright lesion, 10 to 16 mm in radius. It was planted into a "
        "real MR series that is turned, scaled and made noisy for each patient. The model sees raw DICOM and one label "
        "a patient.",
        "one T1 series with contrast; `examples/planted_scans.py` makes 160 patients and 40 new ones",
        "scans --labels scans/labels.csv",
        "",
        new="new_scans",
    ),
    "mammography": Shown(
        "The view of an X-ray",
        "A study of two mammograms, of which one shows a small spot. Both are made up; the files are DICOM.",
        "made by `docs/figures/gallery_sets.py`: 80 studies of noise in the shape of a breast",
        "studies --labels studies.csv",
        "--method midam --folds 0",
    ),
    "tissue": Shown(
        "The corner of a tile",
        "A tile of benign colon, into which 80 x 80 pixels of an adenocarcinoma were pasted. The instances are 49 "
        "cells of a pretrained network; the witnesses are those that the pasted square covers by half or more.",
        "LC25000, 240 benign tiles and 120 squares of others (Borkowski et al., 2019; CC BY 4.0)",
        "tiles --labels tiles.csv",
        "--method midam --folds 0",
    ),
    "customers": Shown(
        "The stolen payments",
        "A customer is a bag of payments with text, dates and gaps; one in forty was defrauded, two to four times.",
        "made by `examples/customers.py`: 2000 customers, 30 247 payments",
        "customers.csv",
        "--bag-column customer --label-column fraud --impute median",
    ),
    "machines": Shown(
        "The hours before a failure",
        "A machine is a bag of 72 hours of three sensors. In a machine that failed, two or three hours are hot, loud "
        "and slow at once; each alone also happens elsewhere.",
        "made by `docs/figures/gallery_sets.py`: 160 machines",
        "machines.csv",
        "--bag-column machine --label-column failed --ignore time --method midam --pooling smoothed-max --folds 0",
    ),
}


def main(names: list[str]) -> None:
    """Run each set in a folder of its own, `runs/gallery`, and write the page."""
    root = Path.cwd()
    if not (root / "examples/customers.py").is_file():
        raise SystemExit("Expected the repository's root as the working folder.")
    folder = root / "runs" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    data = (root / os.environ.get("MIDAM_DATA", "")).resolve()
    old = dict(re.findall(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", PAGE.read_text("utf-8"), re.S)) if PAGE.exists() else {}
    os.chdir(folder)
    parts = [_INTRODUCTION]
    for name, shown in SETS.items():
        kept = names and name not in names
        text = old.get(name, "").strip("\n") if kept else _section(name, shown, witnesses_of(name, folder, data))
        parts += [f"<!-- {name} -->\n{text}\n"] if text else []
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def _section(name: str, shown: Shown, witnesses: Witnesses) -> str:
    run = Path("runs") / name
    typed = " ".join(filter(None, ["midam fit", shown.data, shown.options, "--seed 0 --out", str(run)]))
    if not (run / "report.html").exists():
        _run(typed)
    loaded = midam.load_run(str(run))
    bags, scores, held_out = _unseen(loaded, run, shown)
    positive = [i for i in held_out if str(bags.ids[i]) in witnesses]
    labels = [int(str(bags.ids[i]) in witnesses) for i in held_out]
    interval, area = midam.auroc_interval(labels, scores[held_out]), roc_auc_score(labels, scores[held_out])
    areas, added, right = dict[int, float](), dict[int, float](), 0
    for i in positive:
        known = np.isin(np.arange(bags.sizes[i]), witnesses[str(bags.ids[i])])
        explanation = explain_bag(loaded.model, bags, i)
        right += bool(known[explanation.order[0]])
        if 0 < known.sum() < len(known):
            areas[i] = float(roc_auc_score(known, explanation.contribution))
            added[i] = float(explanation.contribution[known].max())
    best = max(areas, key=added.__getitem__)
    bag = str(bags.ids[best])
    explained = f"midam explain {run} {shown.new or shown.data} --bags {shlex.quote(bag)} --out why/{name}"
    shutil.rmtree(Path("why", name), ignore_errors=True)
    _run(explained)
    _picture(next(path for path in sorted(Path("why", name).glob("*.png"))), HERE / f"gallery_{name}.jpg")
    places = ", ".join(f"#{at}" for at in witnesses[bag])
    figures = f"Test AUROC **{area:.3f}** [{interval.low:.3f}, {interval.high:.3f}], {len(held_out)} bags. "
    figures += f"Instance AUROC **{np.mean([*areas.values()]):.3f}**; the top instance is a witness in {right} of "
    figures += f"{len(positive)} positive bags. Witnesses in the picture: {places} of {bags.sizes[best]}."
    lines = [f"## {shown.title}", "", shown.text, "", figures, ""]
    lines += [f"![{shown.title}: an explained bag](figures/gallery_{name}.jpg)", ""]
    lines += ["```sh", typed, explained, "```", ""]
    if shown.python:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(shown.python, {})
        lines += ["```python", shown.python.rstrip(), "```", "", "```text", printed.getvalue().rstrip(), "```", ""]
    return "\n".join([*lines, f"Source: {shown.source}."])


def _unseen(loaded: midam.LoadedRun, run: Path, shown: Shown) -> tuple[Bags, np.ndarray, list[int]]:
    """Return bags with their scores, and the positions of those that the run was not trained on."""
    data, *options = shlex.split(shown.new or shown.data)
    labels = {"labels": options[1]} if "--labels" in options else {}
    bags = read_for(loaded, data, **labels)
    scores = np.asarray(midam.predict(loaded.model, bags))
    if shown.new:
        return bags, scores, [*range(len(bags))]
    table = pd.read_csv(run / "predictions.csv", dtype={"bag": str}).set_index("bag")
    return bags, scores, [i for i, bag in enumerate(bags.ids.tolist()) if table.loc[bag, "split"] == "test"]


def _run(line: str) -> None:
    if command(shlex.split(line)[1:]):
        raise SystemExit(1)


def _picture(drawn: Path, path: Path) -> None:
    with Image.open(drawn) as picture:
        small = picture.convert("RGB")
        small.thumbnail((_WIDTH, 3 * _WIDTH))
        small.save(path, quality=80, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
