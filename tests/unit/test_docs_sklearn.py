"""The page about scikit-learn runs from top to bottom."""

from pathlib import Path

import pytest
from tests.pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_the_examples_run(capsys):
    names: dict[str, object] = {}
    for block in blocks("python", PAGE.read_text(encoding="utf-8")):
        exec(block, names)
    shown = capsys.readouterr().out.splitlines()
    assert float(shown[0]) > 0.8
    assert shown[1].startswith("['benign' 'malignant']")
    assert shown[2] == "['malignant' 'normal'] malignant"
    assert len(shown[3].split("] [")) == 2  # the AUROC by folds, and scores out of fold
    assert shown[4] == "multiclass (40, 3)"
    assert float(shown[5]) > 0.85
    assert float(shown[6].split()[0]) > 0.9
    assert float(shown[7].split()[0]) > 0.6
    assert shown[-1] == "True"
