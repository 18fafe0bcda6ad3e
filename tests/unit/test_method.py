import pytest
import torch

from midam.errors import ConfigError
from midam.nn.encoders.images import ResNet20
from midam.nn.objectives import BCELoss, MinMaxAUCLoss, PairwiseAUCLoss
from midam.settings import Settings
from midam.train.build import build_method
from midam.train.estimators import AsPrinted, MiniBatch, VarianceReduced
from midam.train.exact import Exact, ExactPoint


def build(**settings):
    shape = settings.pop("shape", (6,))
    return build_method(Settings(**settings), instance_shape=shape, num_bags=5)


def test_settings_reach_the_parts():
    method = build(
        estimator="vrsp-printed",
        state_rate=0.3,
        estimator_args={"lag": True},
        margin=0.4,
        dual_lr=0.2,
        clip=3.0,
        hidden=[7, 4],
    )
    estimator, objective = method.estimator, method.objective
    assert isinstance(estimator, AsPrinted)
    assert isinstance(objective, MinMaxAUCLoss)
    assert (estimator.state_rate, estimator.lag) == (0.3, True)
    assert estimator.bag_state.shape[0] == 5
    assert (objective.margin, objective.dual_lr) == (0.4, 0.2)
    assert method.model.standardizer.clip == 3.0
    assert method.model.encoder.out_features == 4


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vrsp", VarianceReduced),
        ("vrsp-printed", AsPrinted),
        ("minibatch", MiniBatch),
        ("exact", Exact),
        ("exact-point", ExactPoint),
    ],
)
def test_estimators_by_name(name, kind):
    assert type(build(estimator=name).estimator) is kind


@pytest.mark.parametrize(
    ("name", "kind"), [("minmax-auc", MinMaxAUCLoss), ("pairwise", PairwiseAUCLoss), ("bce", BCELoss)]
)
def test_objectives_by_name(name, kind):
    assert type(build(objective=name).objective) is kind


def test_the_seed_alone_decides_the_weights_and_the_global_state_stays():
    state = torch.get_rng_state()
    first, again, other = build(seed=3).model, build(seed=3).model, build(seed=4).model
    assert torch.equal(torch.get_rng_state(), state)
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_without_standardising_nothing_is_clipped():
    standardizer = build(standardize=False).model.standardizer
    assert torch.equal(standardizer(torch.full((1, 6), 1e6)), torch.full((1, 6), 1e6))


def test_images_need_their_encoder():
    assert isinstance(build(encoder="resnet20", shape=(3, 16, 16)).model.encoder, ResNet20)
    with pytest.raises(ConfigError, match=r"resnet20.*\[6\]"):
        build(encoder="resnet20")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"pooling": "max"}, "smooth pooling"),
        ({"pooling": "max", "estimator": "exact-point"}, "smooth pooling"),
        ({"pooling_args": {"foo": 1}}, "pooling_args.*foo"),
        ({"pooling_args": {"squash": True}}, "pooling_args.*squash"),
        ({"pooling": "smoothed-max", "temperature": -1.0}, "valid `temperature`, got -1.0: .* greater than 0"),
        ({"temperature": 0.1}, "no `temperature` with the pooling 'attention', got 0.1"),
        ({"estimator_args": {"foo": 1}}, "estimator 'vrsp' in estimator_args, got 'foo'"),
        ({"objective_args": {"margni": 1}}, "objective_args, got 'margni'; did you mean 'margin'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        build(**settings)


@pytest.mark.parametrize(
    ("settings", "shape", "start"),
    [
        ({}, (3,), 0.0),
        ({"encoder": "resnet20"}, (3, 8, 8), 0.5),
        ({"encoder": "resnet20", "center_start": 0.2}, (3, 8, 8), 0.2),
        ({"center_start": 0.4}, (3,), 0.4),
    ],
)
def test_where_the_centers_start(settings, shape, start):
    config = Settings(**settings)
    objective = build_method(config, instance_shape=shape, num_bags=4).objective
    for center in (objective.positive_center, objective.negative_center):
        assert center.item() == pytest.approx(start)
