"""The page about scikit-learn runs from top to bottom, by the long tests as it stands."""

from pathlib import Path

import pytest
from tests.pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


# Fewer members and epochs, and two pairs of settings in a search over four.
FEWER = {
    "epochs=20": "epochs=20, members=1",
    "epochs=5": "epochs=1, members=1",
    "epochs=3)": "epochs=3, members=1)",
    "epochs=3, members=1)\nsearch": "epochs=1, members=1)\nsearch",
    '"num_instances": [4, 8], "pooling": ["attention", "mean"]': '"num_instances": [4], "pooling": ["mean"]',
}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_the_examples_run(whole, capsys):
    names: dict[str, object] = {}
    text = PAGE.read_text(encoding="utf-8")
    for usual, fewer in () if whole else FEWER.items():
        assert usual in text
        text = text.replace(usual, fewer)
    for block in blocks("python", text):
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
