"""Parameters of a message become flags of the command line."""

import pytest

from midam.cli.parser import as_flags
from midam.errors import given

NAMES = ["groups", "ignore", "split", "split_file", "missing", "volume", "positive", "slice_size"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("`split_column` or `split_file`", "--split or --split-file"),
        (f"leave out with {given(missing='skip')}.", "leave out with --missing skip."),
        (given(ignore_columns=["a b"]), "--ignore 'a b'"),
        (given(ignore_columns=["a", "b"]), "--ignore a,b"),
        (given(volume=True, slice_size=64), "--volume, --slice-size 64"),
        ("`exact`, `reader=3` and `a.csv`", "`exact`, `reader=3` and `a.csv`"),
        ("`slice_size=64px`", "--slice-size 64px"),
    ],
)
def test_parameters_become_flags(message, expected):
    assert as_flags(message, NAMES) == expected
