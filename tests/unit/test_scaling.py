"""The standardizer: robust statistics of features, channel statistics of images, constants, clipping."""

import math

import numpy as np
import pytest
import torch
from scipy.stats.mstats import winsorize
from sklearn.preprocessing import QuantileTransformer

from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn import standardizer
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.trainer import Trainer


@pytest.mark.parametrize(("count", "cut"), [(4, 0), (5, 1), (100, 1), (201, 2)])
def test_features_take_mean_and_deviation_of_the_winsorized_values(count: int, cut: int) -> None:
    x = torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    s = make((3,), clip=float("inf")).double().fit(x)
    kept = np.asarray(winsorize(x.numpy(), limits=(cut / count, cut / count), axis=0))
    np.testing.assert_allclose(s(x).numpy(), (x.numpy() - kept.mean(0)) / kept.std(0), rtol=1e-9, atol=1e-12)


def make(shape, *, clip=10.0, scaling="linear"):
    return Standardizer(shape, clip=clip, scaling=scaling)


def test_an_outlier_does_not_set_the_scale() -> None:
    x = torch.randn(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[7] = 1e12
    assert 0.5 < make((1,)).fit(x).scale.item() < 1.5


def test_mostly_equal_features_take_the_standard_deviation_and_constant_ones_are_zero() -> None:
    mostly = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 4.0])
    constant = torch.full((6,), 0.1)
    s = make((2,)).fit(torch.stack([mostly, constant], dim=1))
    assert s.scale.tolist() == pytest.approx([mostly.std(correction=0).item(), math.inf])
    assert s(torch.tensor([[0.0, 0.1]])).flatten().tolist() == pytest.approx([0.0, 0.0], abs=1e-7)


def test_a_constant_feature_is_not_blown_up() -> None:
    # In floating point the deviation of many equal numbers need not be exactly 0.
    x = torch.full((997, 2), 0.1, dtype=torch.float64)
    s = make((2,)).fit(x)
    assert s.scale.tolist() == [math.inf, math.inf]
    images = torch.full((33, 3, 5, 5), 0.7)
    assert make((3, 5, 5)).fit(images).scale.flatten().tolist() == [math.inf] * 3


def test_images_take_the_mean_and_deviation_of_each_channel() -> None:
    x = (
        torch.randn(6, 2, 4, 3, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 5.0])[:, None, None]
        + 3
    )
    out = make((2, 4, 3), clip=float("inf")).fit(x)(x)
    assert out.shape == x.shape
    assert out.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert out.std(dim=(0, 2, 3), correction=0).tolist() == pytest.approx([1, 1], rel=1e-5)


def test_values_are_clipped_and_bytes_are_cast() -> None:
    s = make((1,), clip=2.0).fit(torch.tensor([[0.0], [1.0], [2.0]]))
    assert s(torch.tensor([[1e9], [-1e9]])).flatten().tolist() == [2.0, -2.0]
    image = make((1, 2, 2)).fit(torch.tensor([[[[0, 255], [255, 0]]]], dtype=torch.uint8))
    assert image(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)).tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


def test_it_is_the_identity_until_fitted_and_travels_with_the_weights() -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    s = make((2,))
    assert torch.equal(s(x), x)
    s.fit(x)
    other = make((2,))
    other.load_state_dict(s.state_dict())
    assert torch.equal(other(x), s(x))
    assert not torch.equal(s(x), x)
    assert not list(s.parameters())


def test_float64_features_with_a_large_offset_keep_their_digits() -> None:
    x = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near, far = make((2,)).fit(x), make((2,)).fit(x + 1e8)
    assert far(x + 1e8).dtype == torch.float32
    torch.testing.assert_close(far(x + 1e8), near(x), rtol=1e-5, atol=1e-5)


def _mixed_features(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sparse = np.where(rng.random(count) < 0.8, 0.0, rng.exponential(size=count))
    steps = rng.integers(0, 4, count).astype(float)
    return np.stack([rng.normal(size=count), np.exp(2 * rng.normal(size=count)), sparse, steps], axis=1)


def test_blend_is_the_mean_of_the_linear_value_and_the_normal_score_of_the_rank() -> None:
    # As many training values as knots: the quantile transformer of scikit-learn then ranks the same values.
    x = _mixed_features(200)
    new = np.concatenate([x[:40], _mixed_features(60, seed=1), [[-1e3] * 4, [1e3] * 4]])
    linear = make((4,)).double().fit(torch.from_numpy(x))
    ranked = QuantileTransformer(n_quantiles=200, output_distribution="normal").fit(linear(torch.from_numpy(x)).numpy())
    scores = ranked.transform(linear(torch.from_numpy(new)).numpy()).clip(-3, 3)
    blend = make((4,), scaling="blend").double().fit(torch.from_numpy(x))
    wanted = (linear(torch.from_numpy(new)).numpy() + scores) / 2 - blend.offset.numpy()
    np.testing.assert_allclose(blend(torch.from_numpy(new)).numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_long_means_of_blended_features_are_subtracted_and_short_ones_stay() -> None:
    features = np.concatenate([_mixed_features(400, seed=seed) for seed in range(320)], axis=1)
    x = torch.from_numpy(features).float()
    wide, narrow = (make((width,), scaling="auto").fit(x[:, :width]) for width in (1280, 40))
    assert wide(x)[:, wide.blended].mean(dim=0).abs().max() < 1e-5
    assert not narrow.offset.any()
    other = make((1280,), scaling="auto")
    other.load_state_dict(wide.state_dict() | {"offset": torch.zeros(1280)})
    torch.testing.assert_close(other(x), wide(x) + wide.offset)


def test_many_features_that_are_often_zero_are_learned() -> None:
    rng, labels = np.random.default_rng(0), np.arange(40) % 2
    signals = np.arange(1280) < 50
    rows = [rng.normal(size=(40, 1280)) + 0.5 * rng.normal(size=1280) + label * signals for label in labels]
    bags = Bags.from_list([np.maximum(x - 0.2, 0).astype(np.float32) for x in rows], labels)
    scores = predict(Trainer(Settings(epochs=12, members=1), bags).fit().model, bags)
    assert auroc(labels, scores) > 0.98
    assert np.ptp(scores) > 0.3  # without the offset the scores of all bags stayed within 0.06


def test_blend_keeps_the_order_and_equal_values_equal() -> None:
    x = torch.from_numpy(_mixed_features(3000)).float()
    s = make((4,), scaling="blend").fit(x)
    out = s(x)
    for column, before in zip(out.T, x.T, strict=True):
        order = before.argsort(stable=True)
        assert (column[order].diff() >= -1e-6).all()
        assert (column[order].diff()[before[order].diff() == 0] == 0).all()
    assert torch.equal(s(x[5:9]), out[5:9])


def test_blend_of_a_constant_feature_is_zero_and_images_stay_linear() -> None:
    s = make((1,), scaling="blend").fit(torch.full((50, 1), 7.0))
    assert s(torch.tensor([[7.0]])).item() == 0
    images = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    both = [make((1, 4, 4), scaling=scaling).fit(images)(images) for scaling in ("linear", "blend")]
    assert torch.equal(*both)


def test_blend_travels_with_the_weights() -> None:
    x = torch.from_numpy(_mixed_features(80)).float()
    s = make((4,), scaling="blend").fit(x)
    other = make((4,), scaling="blend")
    other.load_state_dict(s.state_dict())
    assert torch.equal(other(x), s(x))


@pytest.mark.parametrize("scaling", ["blend", "auto"])
@pytest.mark.parametrize("fitted_on", [torch.float32, torch.float64])
def test_a_value_is_the_same_in_single_and_in_double_precision(scaling: str, fitted_on: torch.dtype) -> None:
    # Heaps at many places: a heap that missed its own knot by a rounding error would land at an end of its ranks.
    rng = np.random.default_rng(0)
    heap = rng.normal(size=60)
    x = np.where(rng.random((400, 60)) < 0.7, heap, rng.normal(size=(400, 60)) + 0.1 * heap).astype(np.float32)
    s = make((60,), scaling=scaling).fit(torch.from_numpy(x).to(fitted_on))
    single, double = s(torch.from_numpy(x)), s(torch.from_numpy(x).double())
    torch.testing.assert_close(single, double, rtol=0, atol=1e-3)
    for column, value in zip(single.T, x.T, strict=True):
        assert len(column[torch.from_numpy(value == np.unique(value)[0])].unique()) == 1


def test_only_blended_features_are_ranked(monkeypatch) -> None:
    x, ranked = torch.from_numpy(_mixed_features(1000)).float(), list[int]()
    auto = make((4,), scaling="auto").fit(x)
    real = standardizer._normal_scores
    monkeypatch.setattr(standardizer, "_normal_scores", lambda u, knots: ranked.append(u.shape[1]) or real(u, knots))
    auto(x)
    assert ranked == [int(auto.blended.sum())]
    assert 0 < ranked[0] < 4
    make((2,), scaling="auto").fit(x[:, :2])(x[:, :2])
    assert ranked[1:] == []


def test_auto_blends_the_features_that_pile_up_and_leaves_the_others() -> None:
    x = torch.from_numpy(_mixed_features(1000)).float()
    auto = make((4,), scaling="auto").fit(x)(x)
    linear, blend = (make((4,), scaling=scaling).fit(x)(x) for scaling in ("linear", "blend"))
    assert torch.equal(auto[:, :2], linear[:, :2])
    assert torch.equal(auto[:, 2], blend[:, 2])
    assert not torch.equal(auto[:, 2], linear[:, 2])
