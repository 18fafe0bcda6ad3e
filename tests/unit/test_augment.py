"""Augmentation: what each change does, its draws, and where it has no business."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.trainings import train, weights

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.registry import AUGMENTATIONS
from midam.settings import Settings
from midam.train.augment import Augment
from midam.train.trainer import Trainer
from midam.train.trials import Trial, train_trials

PATCH, SLICE, VOLUME = (3, 16, 16), (1, 12, 12), (1, 9, 8, 8)


def instances(count, shape, *, seed=0):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def changed(names, x, *, seed=0):
    torch.manual_seed(seed)
    return Augment(names, instance_shape=tuple(x.shape[1:]))(x)


def images(number=12, *, shape=PATCH):
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 256, size=(4, *shape), dtype=np.uint8) for _ in range(number)]
    return Bags.from_list(parts, [1, 0] * (number // 2))


def settings(**changes):
    base = {"encoder": "resnet20", "epochs": 2, "num_positive": 2, "num_negative": 2, "num_instances": 2, "members": 1}
    return Settings(**{**base, **changes})


def small(**changes):
    """A run on small images with the quickest encoder there is."""
    return Trainer(settings(**{"encoder": "mlp", "augment": ["flip", "crop"], **changes}), images(shape=(1, 8, 8)))


@pytest.mark.parametrize("shape", [PATCH, SLICE, VOLUME])
def test_flips_are_all_the_flips_equally_often(shape) -> None:
    x = instances(1, shape).expand(800, *shape)
    out = changed(["flip"], x)
    axes = list(range(1, len(shape)))
    counts = []
    for bits in range(2 ** len(axes)):
        flipped = x[0].flip([axis for i, axis in enumerate(axes) if bits >> i & 1])
        counts.append(sum(torch.equal(row, flipped) for row in out))
    assert sum(counts) == 800
    assert chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("shape", [PATCH, VOLUME])
def test_rotations_are_the_four_of_the_last_plane_equally_often(shape) -> None:
    x = instances(1, shape).expand(800, *shape)
    out = changed(["rotate90"], x)
    counts = [sum(torch.equal(row, x[0].rot90(k, (-2, -1))) for row in out) for k in range(4)]
    assert sum(counts) == 800
    assert chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize(("length", "reach"), [(2, 1), (3, 1), (8, 1), (16, 2), (40, 5)])
def test_a_crop_is_a_window_of_the_reflected_instance(length, reach) -> None:
    x = instances(1, (1, length, length)).expand(600, 1, length, length)
    out = changed(["crop"], x)
    padded = torch.nn.functional.pad(x[:1], (reach,) * 4, mode="reflect")[0]
    windows = [padded[:, i : i + length, j : j + length] for i in range(2 * reach + 1) for j in range(2 * reach + 1)]
    counts = [sum(torch.equal(row, window) for row in out) for window in windows]
    # In an instance of two positions some windows are equal.
    assert sum(count > 0 for count in counts) == len(windows)
    assert all(any(torch.equal(row, window) for window in windows) for row in out)


def test_a_volume_is_cropped_along_each_axis() -> None:
    x = torch.arange(9 * 8 * 8, dtype=torch.float64).view(1, *VOLUME).expand(300, *VOLUME)
    middle = changed(["crop"], x)[:, 0, 4, 4, 4] - x[0, 0, 4, 4, 4]
    assert set(middle.tolist()) == {64 * a + 8 * b + c for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1)}


@pytest.mark.parametrize("shape", [PATCH, SLICE, VOLUME, (4, 6, 5)])
def test_intensity_scales_about_the_mean_and_shifts_by_a_part_of_the_deviation(shape) -> None:
    x = 50 + 7 * instances(500, shape)
    out = changed(["intensity"], x)
    axes = tuple(range(1, x.ndim))
    mean, deviation = x.mean(axes), x.std(axes, correction=0)
    contrast = out.std(axes, correction=0) / deviation
    shift = (out.mean(axes) - mean) / deviation
    for value, low, high in ((contrast, 0.8, 1.2), (shift, -0.2, 0.2)):
        assert low <= value.min() < low + 0.01
        assert high - 0.01 < value.max() <= high
    view = (-1, *[1] * len(shape))
    expected = (mean + shift * deviation).view(view) + (x - mean.view(view)) * contrast.view(view)
    assert torch.allclose(out, expected, rtol=1e-9)


def test_color_changes_the_saturation_too() -> None:
    x = instances(500, PATCH)
    out = changed(["color"], x)
    gray, gray_out = x.mean(1, keepdim=True), out.mean(1, keepdim=True)
    axes = (1, 2, 3)
    contrast = gray_out.std(axes, correction=0) / gray.std(axes, correction=0)
    saturation = (out - gray_out).std(axes, correction=0) / (x - gray).std(axes, correction=0) / contrast
    assert 0.8 <= saturation.min() < 0.81
    assert 1.19 < saturation.max() <= 1.2 + 1e-9
    assert not torch.allclose(saturation, contrast)


def test_the_unit_of_an_instance_does_not_matter() -> None:
    x = instances(20, PATCH)
    assert torch.allclose(changed(["color"], 40 * x + 9), 40 * changed(["color"], x) + 9, rtol=1e-9)


def test_a_constant_instance_stays() -> None:
    x = torch.full((5, *PATCH), 3.0, dtype=torch.float64)
    assert torch.allclose(changed([name for name in AUGMENTATIONS.names() if name != "intensity"], x), x)


def test_each_instance_has_a_draw_of_its_own_and_the_generator_decides() -> None:
    names = ["flip", "rotate90", "crop", "color"]
    x = instances(1, PATCH).expand(50, *PATCH)
    out = changed(names, x)
    assert len({tuple(row.flatten().tolist()) for row in out}) > 45
    assert torch.equal(out, changed(names[::-1], x)), "the order of the names does not matter"
    assert not torch.equal(out, changed(names, x, seed=1))


def test_evaluation_and_no_names_leave_instances_alone() -> None:
    x = instances(5, PATCH)
    state = torch.get_rng_state()
    assert Augment(AUGMENTATIONS.names(), instance_shape=PATCH).eval()(x) is x
    assert Augment([], instance_shape=(5,))(x) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("names", "shape", "text"),
    [
        (["rotate"], PATCH, "got 'rotate'; did you mean 'rotate90'"),
        (["flip", "flip"], PATCH, "each name once in augment, got flip, flip"),
        (["flip"], (7,), r"to augment, got \[7\]"),
        (["rotate90"], (1, 8, 9), r"one length for augment 'rotate90', got \[1, 8, 9\]"),
        (["color"], SLICE, r"three channels for augment 'color', got \[1, 12, 12\]"),
    ],
)
def test_what_cannot_be_augmented_says_why(names, shape, text) -> None:
    with pytest.raises(ConfigError, match=text):
        Augment(names, instance_shape=shape)


def test_an_unknown_name_is_found_with_the_settings_and_features_before_training() -> None:
    with pytest.raises(ConfigError, match="did you mean 'crop'"):
        Settings(augment=["cropp"])
    bags = Bags.from_list([np.ones((2, 3)), np.zeros((2, 3))], [0, 1])
    with pytest.raises(ConfigError, match=r"to augment, got \[3\]"):
        Trainer(Settings(augment=["flip"], num_positive=1, num_negative=1), bags)


@pytest.mark.parametrize("estimator", ["vrsp", "minibatch", "exact"])
def test_a_run_with_augmentation_repeats_and_resumes_bit_for_bit(estimator) -> None:
    changes = {"estimator": estimator, "chunk_size": 5, "epochs": 3}
    whole = train(small(**changes))
    first = small(**changes)
    first.train_epoch()
    second = small(**changes)
    second.load_state_dict(first.state_dict())
    assert torch.equal(weights(train(second)), weights(whole))
    assert not torch.equal(weights(train(small(**changes, augment=[]))), weights(whole))


def test_the_number_of_workers_does_not_matter() -> None:
    runs = [train(small(resident=False, workers=workers)) for workers in (0, 2)]
    assert torch.equal(weights(runs[0]), weights(runs[1]))


def test_both_passes_of_exact_see_the_same_instances() -> None:
    # In one pass the draws of all instances stand in one table, in two passes a chunk has its own: so the gradient is
    # compared with plain autograd over the very chunks.
    trainer = small(estimator="exact", chunk_size=16, augment=["flip", "intensity"], objective="bce")
    member = trainer.members[0]
    batch = next(member.batches())
    torch.manual_seed(3)
    output = member.estimator(member.trained, batch)
    torch.autograd.backward(output.score.sum())
    parameters = [p for p in member.model.parameters() if p.requires_grad]
    found = [p.grad.clone() for p in parameters]
    torch.manual_seed(3)
    parts = [member.trained.instances(x) for _, _, x in batch.read(16)]
    z, v = (torch.cat(column) for column in zip(*parts))
    sizes = batch.sizes.tolist()
    scores = []
    for z_bag, v_bag in zip(z.split(sizes), v.split(sizes)):
        l, r = z_bag.logsumexp(0) - np.log(len(z_bag)), torch.softmax(z_bag, 0) @ v_bag  # noqa: E741
        scores.append(member.model.pooling.score(l[None], r[None], torch.tensor([float(len(z_bag))])))
    expected = torch.autograd.grad(torch.cat(scores).sum(), parameters)
    for a, b in zip(found, expected):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_scores_of_evaluation_are_those_of_the_instances_as_they_are() -> None:
    trainer = small(augment=["flip", "crop", "intensity"])
    trainer.train_epoch()
    bags = images(shape=(1, 8, 8))
    trainer.model.eval()
    x = torch.from_numpy(bags.instances)
    expected = trainer.model(x, torch.from_numpy(bags.sizes)).detach().numpy()
    trainer.model.train()
    np.testing.assert_allclose(predict(trainer.model, bags), expected, rtol=1e-5)
    assert "augment" not in " ".join(trainer.model.state_dict())


@pytest.mark.parametrize("changes", [{"estimator": "exact-point"}, {"estimator": "exact", "pooling": "max"}])
def test_estimators_that_encode_an_instance_twice_refuse_it(changes) -> None:
    trainer = small(chunk_size=3, **changes)
    with pytest.raises(ConfigError, match=r"encodes one twice, got augment \['flip', 'crop'\]"):
        trainer.train_epoch()


def test_trials_are_augmented_as_well() -> None:
    bags = images(shape=(1, 8, 8))
    everything = np.arange(len(bags))
    config = settings(encoder="mlp", augment=["flip", "crop"])
    result = train_trials(config, bags, [Trial(everything, everything, 0)])[0]
    np.testing.assert_allclose(result.scores[-1], predict(train(small()).model, bags), rtol=1e-6)
