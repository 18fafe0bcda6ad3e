"""Train on six sets of bags as a reader would, and write the page of the gallery with its pictures.

Run `PYTHONPATH=. python docs/figures/gallery.py` from the repository's root, with MIDAM_DATA at the folder of the data:
about a quarter of an hour on two cores. It writes `docs/gallery.md`, and a picture for each set beside this file. With
names of sets behind it, it writes these anew and leaves the others.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from midam.cli import main as command

HERE = Path(__file__).parent
PAGE = HERE.with_name("gallery.md")
_WIDTH = 1100  # pixels of a picture
_INTRODUCTION = """# Gallery

Five sets of real bags and one synthetic set, each with the command that trains on it and some Python. The number is the
AUROC on test bags, on which nothing was fitted or chosen, with its 95% interval. The picture explains the test bag with
the highest score. `PYTHONPATH=. python docs/figures/gallery.py` writes this page.
"""


@dataclass(frozen=True)
class Shown:
    """A set of the gallery: its title, what its bags are, its source, the data as typed, options, and Python."""

    title: str
    text: str
    source: str
    data: str
    options: str
    python: str
    first: str = ""  # a command that makes the data


SETS = {
    "digits": Shown(
        "Digits",
        "Five to fifteen handwritten digits; the bag is positive where one to three of them are nines.",
        "scikit-learn's digits (Alpaydin and Kaynak, 1998; CC BY 4.0), 360 bags",
        "digits",
        "--method midam --num-instances 4",
        """import midam
from midam.explain import explain_bag

run, bags = midam.load_run("runs/digits"), midam.read_bags("digits")
best = int(midam.predict(run.model, bags).argmax())
found = explain_bag(run.model, bags, best)
print(bags.ids[best], found.order[:3], found.contribution[found.order[:3]].round(3))
""",
    ),
    "molecules": Shown(
        "Molecules",
        "A molecule is a bag of the shapes that it can take; it smells of musk if one of them fits.",
        "MUSK 2, 102 molecules, 6598 shapes of 166 numbers (Dietterich et al., 1997; CC BY 4.0)",
        "musk2",
        "--plugin studies.sets.reader",
        """from sklearn.model_selection import cross_val_score

import midam
from studies.sets import catalog

bags = catalog.load("musk2")
model = midam.BagClassifier(seed=0)
areas = cross_val_score(model, bags, bags.labels, cv=3, scoring="roc_auc")
print(areas.round(3))
""",
    ),
    "customers": Shown(
        "Customers",
        "A customer is a bag of payments with text, dates and gaps; one in forty was defrauded.",
        "made by examples/customers.py: 2000 customers, 30 247 payments",
        "customers.csv",
        "--bag-column customer --label-column fraud --impute median",
        """import pandas as pd

scores = pd.read_csv("runs/customers/predictions.csv")
test = scores[scores["split"] == "test"].sort_values("score", ascending=False)
print(test[["bag", "label", "score"]].head(5).to_string(index=False))
""",
        first="python examples/customers.py customers.csv",
    ),
    "icu": Shown(
        "Stays in intensive care",
        "A stay is a bag of intervals of 4 hours, from its first two days; the label is death in hospital.",
        "PhysioNet Challenge 2012, 1493 stays of set a (Silva et al., 2012; open access)",
        "physionet2012_icu",
        "--plugin studies.sets.reader",
        """import pandas as pd

scores = pd.read_csv("runs/icu/predictions.csv").query("split == 'test'")
fifth = pd.qcut(scores["score"], 5, labels=["lowest", "low", "middle", "high", "highest"])
print(scores.groupby(fifth, observed=True)["label"].mean().round(2).to_string())
""",
    ),
    "histology": Shown(
        "Histology",
        "An image of colon tissue is a bag of squares of 32 x 32 pixels; adenocarcinoma or benign. Versions of one "
        "tile stay in one split.",
        "LC25000, 1100 tiles of 768 x 768 pixels (Borkowski et al., 2019; CC BY 4.0)",
        "colon",
        "--encoder efficientnet-lite0 --plugin studies.sets.reader",
        """from pathlib import Path

import midam

vectors = midam.open_store(next(Path("runs/vectors").glob("*/colon")))  # which midam fit kept
model = midam.MIDAMClassifier(method="bag-statistics-logistic", seed=0)
model.fit(vectors, vectors.labels, groups=vectors.groups)
print(vectors, model.classes_)
""",
    ),
    "ct": Shown(
        "CT",
        "A CT of an adrenal gland, as the mask of its shape, is a bag of slices; a mass or none.",
        "AdrenalMNIST3D, 1584 volumes of 64 x 64 x 64 with its own test bags (Yang et al., 2023; CC BY 4.0)",
        "adrenal",
        "--encoder efficientnet-lite0 --plugin studies.sets.reader",
        """import pandas as pd

import midam

scores = pd.read_csv("runs/ct/predictions.csv").query("split == 'test'")
found = midam.auroc_interval(scores["label"], scores["score"])
print(f"{len(scores)} test volumes, AUROC {found.low:.3f} to {found.high:.3f}")
""",
    ),
}


def main(names: list[str]) -> None:
    """Run each set in a folder of its own, `runs/gallery`, and write the page."""
    root = Path.cwd()
    if not (root / "examples/customers.py").is_file():
        raise SystemExit("Expected the repository's root as the working folder.")
    folder = root / "runs" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    if (root / os.environ.get("MIDAM_DATA", "")).is_dir():
        os.environ["MIDAM_DATA"] = str(root / os.environ["MIDAM_DATA"])
    old = dict(re.findall(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", PAGE.read_text("utf-8"), re.S)) if PAGE.exists() else {}
    os.chdir(folder)
    parts = [_INTRODUCTION]
    for name, shown in SETS.items():
        text = old.get(name, "").strip("\n") if names and name not in names else _section(root, name, shown)
        parts.append(f"<!-- {name} -->\n{text}\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def _section(root: Path, name: str, shown: Shown) -> str:
    run = Path("runs") / name
    typed = " ".join(filter(None, ["midam fit", shown.data, shown.options, "--seed 0 --out", str(run)]))
    if shown.first:
        words = shlex.split(shown.first)
        subprocess.run([sys.executable, str(root / words[1]), *words[2:]], check=True)
    if not (run / "report.html").exists():
        _run(typed)
    result = json.loads((run / "summary.json").read_text("utf-8"))["test"]
    scores = pd.read_csv(run / "predictions.csv", dtype={"bag": str})
    best = scores[scores["split"] == "test"].sort_values("score", ascending=False)["bag"].iloc[0]
    plugin = " --plugin studies.sets.reader" if "--plugin" in shown.options else ""
    explained = f"midam explain {run} {shown.data}{plugin} --bags {shlex.quote(best)} --out why/{name}"
    shutil.rmtree(Path("why", name), ignore_errors=True)
    _run(explained)
    drawn = next(path for path in sorted(Path("why", name).glob("*.png")) if path.name.count(".") == 1)
    _picture(drawn, HERE / f"gallery_{name}.jpg")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(shown.python, {})
    low, high = result["auroc_ci95"]
    figure = f"Test AUROC **{result['auroc']:.3f}** [{low:.3f}, {high:.3f}], {result['bags']} bags."
    lines = [f"## {shown.title}", "", shown.text, figure, "", f"![{shown.title}: the test bag with the highest score]"]
    lines[-1] += f"(figures/gallery_{name}.jpg)"
    commands = "\n".join(filter(None, [shown.first, typed, explained]))
    code = ["```sh", commands, "```", "", "```python", shown.python.rstrip(), "```", ""]
    return "\n".join([*lines, "", *code, "```text", printed.getvalue().rstrip(), "```", "", f"Source: {shown.source}."])


def _run(line: str) -> None:
    if command(shlex.split(line)[1:]):
        raise SystemExit(1)


def _picture(drawn: Path, path: Path) -> None:
    with Image.open(drawn) as picture:
        small = picture.convert("RGB")
        small.thumbnail((_WIDTH, _WIDTH))
        small.save(path, quality=80, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
