"""Arguments that make no sense are refused in a sentence, wherever a user builds a part by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from midam.data.bags import Bags
from midam.errors import BagDataError, ConfigError
from midam.evaluate.predict import instance_scores
from midam.nn import MLP
from midam.registry import POOLINGS
from midam.sklearn import MIDAMClassifier, MIDAMRanker
from midam.train.step import make_optimizer, parameter_groups

NO_COUNTS = (None, "x", -1, 0, 2.5, float("nan"), [])


@pytest.mark.parametrize("count", NO_COUNTS, ids=str)
@pytest.mark.parametrize("pooling", POOLINGS.names())
def test_a_pooling_takes_whole_numbers_of_features(pooling, count):
    with pytest.raises(ConfigError, match="Expected `in_features`"):
        POOLINGS.find(pooling)(count)


@pytest.mark.parametrize("count", NO_COUNTS, ids=str)
def test_an_mlp_takes_whole_numbers_of_features_and_widths(count):
    with pytest.raises(ConfigError, match="Expected `in_features`"):
        MLP(count)
    with pytest.raises(ConfigError, match=r"Expected `hidden\[1\]`"):
        MLP(3, hidden=[4, count])


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_an_mlp_takes_dropout_below_1(dropout):
    with pytest.raises(ConfigError, match="Expected `dropout`"):
        MLP(3, dropout=dropout)


def test_an_optimizer_is_sgd_or_adam_and_nothing_else_becomes_one():
    with pytest.raises(ConfigError, match="got 'Adamw'"):
        make_optimizer("Adamw", [{"params": [nn.Parameter(torch.zeros(1))]}], lr=0.1, momentum=0.9)


def test_parameters_are_those_of_modules():
    with pytest.raises(ConfigError, match="Expected `model`"):
        parameter_groups([nn.Parameter(torch.zeros(1))], nn.Identity(), weight_decay=0.0)
    with pytest.raises(ConfigError, match="Expected `objective`"):
        parameter_groups(nn.Linear(1, 1), None, weight_decay=0.0)


@pytest.mark.parametrize(("bags", "index"), [([[[1.0]]], 0), (Bags.from_list([[[1.0]]]), "bag-0")])
def test_instance_scores_are_those_of_a_bag_by_its_number(bags, index):
    with pytest.raises(ConfigError, match=r"Expected `(bags|index)`"):
        instance_scores(nn.Identity(), bags, index)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("estimator", [MIDAMClassifier, MIDAMRanker])
def test_labels_that_are_no_numbers_are_refused_in_our_words(estimator, value):
    with pytest.raises(BagDataError, match=r"^Expected a label for each bag, got none for some: .* y contains"):
        estimator().fit([np.zeros((2, 1))] * 4, np.array([0, 1, 0, value]))


@pytest.mark.parametrize("estimator", [MIDAMClassifier, MIDAMRanker])
def test_a_frame_without_bags_says_how_rows_become_bags(estimator):
    frame = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0)})
    with pytest.raises(BagDataError, match=r"Each row of X was read as a bag.*MultiIndex"):
        estimator().fit(frame, [0, 1, 0])
