"""Draw the pictures of reports: a run on desktop and phone, its evaluation elsewhere, and a comparison.

Run `python docs/figures/report.py` from the repository's root; it needs Chromium (`chromium` on the path) and writes
`report_*.png` beside this file. The bags are made of scikit-learn's digits: positive ones hold nines. Two hospitals get
different digits; the second one's are noisier, and its share of positive bags is lower.
"""

import csv
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_digits

from midam.cli import main as midam

HERE = Path(__file__).parent
NOISE = {"north": 0.0, "south": 2.0, "west": 4.0, "east": 5.0}  # of 16 gray levels
SHOWN = 1900  # pixels
METHODS = "midam-att,midam-smx,dam-mb-att,bag-statistics-extratrees,mean-map-svm"


def write_hospital(folder: Path, name: str, sites: list[str], *, bags: int, share: float, digits: slice) -> None:
    """Write NAME.csv, a row an instance, and NAME-sites.csv, a row a patient; two bags of each patient."""
    rng = np.random.default_rng(len(sites))
    data = load_digits()
    images, numbers = data.data[digits], data.target[digits]
    nines, others = np.flatnonzero(numbers == 9), np.flatnonzero(numbers != 9)
    features = [f"f{place}" for place in range(images.shape[1])]
    with (folder / f"{name}.csv").open("w", newline="") as rows, (folder / f"{name}-sites.csv").open("w") as table:
        writer = csv.writer(rows)
        writer.writerow(["bag", "label", "patient", *features])
        table.write("patient,site,age\n")
        for patient in range(bags // 2):
            site, own = sites[patient % len(sites)], rng.normal(0, 0.5, images.shape[1])
            table.write(f"{name}-{patient:03d},{site},{rng.integers(30, 85)}\n")
            for bag in range(2):
                label = int(rng.random() < share)
                size, hits = int(rng.integers(5, 16)), int(rng.integers(1, 4)) * label
                chosen = np.append(rng.choice(nines, hits), rng.choice(others, size - hits))
                values = images[chosen] + own + rng.normal(0, NOISE[site], (size, images.shape[1]))
                for instance in values:
                    head = [f"{name}-{patient:03d}-{bag}", label, f"{name}-{patient:03d}"]
                    writer.writerow([*head, *(f"{value:.2f}" for value in instance)])


def pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Make the three reports; gives name and path of each."""
    write_hospital(folder, "own", ["north", "south", "west"], bags=400, share=0.5, digits=slice(0, 1200))
    write_hospital(folder, "elsewhere", ["east", "north"], bags=160, share=0.3, digits=slice(1200, None))
    run, own, other = folder / "run", folder / "own.csv", folder / "elsewhere.csv"
    command(["fit", str(own), "--groups", "patient", "--num-instances", "4", "--epochs", "60", "--out", str(run)])
    for name, data in (("run", None), ("external", other)):
        table = str(folder / f"{(data or own).stem}-sites.csv")
        given = [] if data is None else [str(data)]
        page = run / f"{name}.html"
        command(["report", str(run), *given, "--subgroups", "site,age", "--table", table, "--out", str(page)])
        yield name, page
    compared = folder / "comparison"
    choices = ["--groups", "patient", "--epochs", "30", "--jobs", "1", "--cv", "2x5", "--lrs", "0.05", "--margins", "1"]
    command(["compare", str(own), "--methods", METHODS, *choices, "--out", str(compared)])
    yield "comparison", compared / "report.html"


def command(words: list[str]) -> None:
    """Run a command of midam."""
    if midam(words):
        raise SystemExit(1)


def picture(page: Page, path: Path, *, width: int) -> None:
    """Draw the upper part of a page, in few colors."""
    page.set_viewport_size({"width": width, "height": SHOWN})
    page.screenshot(path=path)
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def main() -> None:
    """Make the reports and draw them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path in pages(Path(folder)):
            page = browser.new_page()
            page.goto(path.as_uri())
            picture(page, HERE / f"report_{name}.png", width=1280)
            if name == "run":
                picture(page, HERE / "report_run_phone.png", width=390)
        browser.close()


if __name__ == "__main__":
    main()
