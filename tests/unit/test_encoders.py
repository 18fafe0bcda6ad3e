"""The encoders: shapes, independence of instances, handcrafted features, other people's networks, frozen parts."""

import importlib
import importlib.util
import json
import math
import struct
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from midam.data.bags import Bags
from midam.errors import ConfigError, MidamError
from midam.evaluate.predict import predict
from midam.nn.encoders import MLP, PatchStatistics
from midam.nn.encoders.custom import Encoder, batch_norms, load_weights, make_module
from midam.nn.encoders.images import ResNet20
from midam.registry import ENCODERS, load_plugins
from midam.runs.fit import fit_run, read_run_config
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.settings import Settings
from midam.train.build import build_encoder, build_ensemble, build_method
from midam.train.members import Checkpointed
from midam.train.trainer import Trainer

OWN_NETWORK = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, channels, width=5, dropout=0.0, normed=False):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4) if normed else nn.Identity(), nn.ReLU())
        self.drop = nn.Dropout(dropout)
        self.top = nn.Conv2d(4, width, 3)

    def forward(self, x):
        return torch.tanh(self.top(self.drop(self.stem(x))))

class Pair(nn.Module):
    def forward(self, x):
        return x.flatten(1), x

class Sum(nn.Module):
    def forward(self, x):
        return x.sum()

class Half(Tiny):
    def forward(self, x):
        return super().forward(x).half()

class Asserts(nn.Module):
    def __init__(self):
        assert False, "never made"

class Odd(nn.Module):
    def __init__(self):
        raise ArithmeticError("odd")

class Still(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(2, affine=False)
        self.top = nn.Conv2d(2, 4, 3)

    def forward(self, x):
        return self.top(self.norm(x))

def linear(width):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width))

def number():
    return 3

from midam.registry import ENCODERS
for thing in (Tiny, Half, Pair, Sum, Asserts, Odd, Still, linear, number):
    ENCODERS.add(f"own_network.{thing.__name__}", thing)
"""
SHAPE = (2, 8, 8)


def naive_statistics(image):
    """Color and texture of one channel, pixel by pixel."""
    texture, half = [], tuple(side // 2 for side in image.shape)
    coarse = np.zeros(half)
    for place in np.ndindex(*half):
        block = image[tuple(slice(2 * at, 2 * at + 2) for at in place)]
        coarse[place] = block.mean()
    for x in (image, coarse):
        steps, laplacian = [[] for _ in x.shape], []
        for place in np.ndindex(*x.shape):
            total = 0.0
            for axis, side in enumerate(x.shape):
                for way in (-1, 1):
                    at = list(place)
                    at[axis] += way
                    if 0 <= at[axis] < side:
                        total += x[tuple(at)] - x[place]
                        if way == 1:
                            steps[axis].append(abs(x[tuple(at)] - x[place]))
            laplacian.append(total)
        texture.append([*(np.mean(of_axis) for of_axis in steps), np.sqrt(np.mean(np.square(laplacian)))])
    gap = image - image.mean()
    tilt = np.sqrt(np.mean(np.maximum(gap, 0) ** 2)) - np.sqrt(np.mean(np.minimum(gap, 0) ** 2))
    return [image.mean(), image.std(), tilt, *texture[0], coarse.std(), *texture[1]]


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 4, 7), (2, 5, 4, 6)], ids=str)
def test_patch_statistics_are_those_of_a_naive_loop(shape):
    x = np.random.default_rng(0).gamma(2.0, 30.0, size=(4, *shape))
    encoder = PatchStatistics(shape)
    found = encoder(torch.from_numpy(x))
    assert (found.dtype, found.shape[1]) == (torch.float64, encoder.out_features)
    assert encoder.out_features == shape[0] * (10 if len(shape) == 3 else 12)
    wanted = [[number for channel in image for number in naive_statistics(channel)] for image in x]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(encoder(torch.from_numpy(x[2:3]))[0].numpy(), wanted[2], rtol=1e-9, atol=1e-9)


def test_patch_statistics_of_bytes_are_of_the_numbers_that_they_stand_for():
    x = torch.randint(0, 256, (3, 2, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(PatchStatistics((2, 8, 8))(x), PatchStatistics((2, 8, 8))(x.double()))
    flat = PatchStatistics((1, 4, 4))(torch.full((1, 1, 4, 4), 200, dtype=torch.uint8))
    assert flat.tolist() == [[200.0, *[0.0] * 9]]


@pytest.mark.parametrize("shape", [(5,), (8, 8), (3, 3, 8), (1, 2, 8, 8), (1, 8, 8, 8, 8)], ids=str)
def test_patch_statistics_refuse_what_is_no_image(shape):
    with pytest.raises(ConfigError, match="Expected images or volumes of at least 4 pixels"):
        PatchStatistics(shape)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A plug-in of the user's on the path, loaded, and its name."""
    (tmp_path / "own_network.py").write_text(OWN_NETWORK, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(["own_network"])
    yield "own_network"
    forget()


def forget():
    """Undo what the plug-in has added."""
    sys.modules.pop("own_network", None)
    for name in [name for name in ENCODERS.names() if name.startswith("own_network.")]:
        ENCODERS.remove(name)


def images(number=12, *, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, 200, size=(3, *shape), dtype=np.uint8) for _ in range(number)]
    for part in parts[::2]:
        part[0] = np.minimum(part[0] + np.uint8(55), 255)
    return Bags.from_list(parts, [1, 0] * (number // 2))


def settings(**changes):
    base = {"epochs": 2, "num_positive": 3, "num_negative": 3, "num_instances": 2, "lr": 0.05}
    return Settings(**{**base, **changes})


def train(config, bags):
    trainer = Trainer(config, bags)
    while not trainer.finished:
        trainer.train_epoch()
    return trainer


def saved_weights(folder):
    state = torch.load(folder.model, weights_only=True)["model"]
    return [value for name, value in state.items() if ".standardizer." not in name]


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_volumes_in_bfloat16_are_refused_on_the_cpu():
    bags = Bags.from_list([np.zeros((1, 1, 4, 8, 8), np.uint8)] * 6, [0, 1] * 3)
    config = settings(encoder="resnet20-3d", precision="bf16-mixed", accelerator="cpu", standardize=False)
    with pytest.raises(ConfigError, match="32-true for 3-D convolutions on the CPU"):
        Trainer(config, bags)


def test_mlp_of_the_paper_is_one_tanh_layer_as_wide_as_the_input() -> None:
    mlp = MLP(5)
    x = torch.randn(3, 5)
    linear = mlp.layers[0]
    assert mlp.out_features == 5
    assert torch.allclose(mlp(x), torch.tanh(x @ linear.weight.T + linear.bias))


def test_mlp_layers_flattening_and_dropout() -> None:
    torch.manual_seed(0)
    mlp = MLP(6, hidden=(8, 3), dropout=0.5)
    kinds = [type(layer) for layer in mlp.layers]
    assert kinds == [nn.Linear, nn.Tanh, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout]
    assert mlp.out_features == 3
    x = torch.randn(4, 2, 3)
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x.flatten(1)))
    mlp.train()
    assert not torch.equal(mlp(x), mlp(x))


@pytest.mark.parametrize(("spatial", "kind", "weights_in_all"), [(2, nn.Conv2d, 267_696), (3, nn.Conv3d, 803_088)])
def test_resnet20_has_twenty_weighted_layers_counting_the_classifier(spatial, kind, weights_in_all) -> None:
    net = ResNet20(3, spatial=spatial)
    convolutions = [m for m in net.modules() if isinstance(m, kind)]
    assert len(convolutions) + 1 == 20
    assert sum(p.numel() for m in convolutions for p in m.parameters()) == weights_in_all
    assert net(torch.randn(2, 3, *[8] * spatial)).shape == (2, 64)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("sides", [(9, 14), (5, 8, 7)])
def test_resnet20_takes_any_channels_and_sides(channels, sides) -> None:
    net = ResNet20(channels, spatial=len(sides))
    assert net(torch.randn(2, channels, *sides)).shape == (2, net.out_features)


def test_the_shortcut_is_option_a_of_the_paper() -> None:
    net = ResNet20(1)
    block = net.blocks[3]
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(1, 16, 6, 4)
    expected = torch.zeros(1, 32, 3, 2)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    assert torch.equal(block(x), expected)


def test_a_volume_of_one_slice_thickness_agrees_with_the_image() -> None:
    flat, deep = ResNet20(1, spatial=2).double(), ResNet20(1, spatial=3).double()
    state = flat.state_dict()
    for name, weight in deep.state_dict().items():
        if weight.ndim == 5:
            weight.zero_()
            weight[:, :, 1] = state[name]
        else:
            weight.copy_(state[name])
    x = torch.randn(2, 1, 9, 7, dtype=torch.float64)
    assert torch.allclose(deep(x.unsqueeze(2)), flat(x), rtol=1e-9)


@pytest.mark.parametrize("sides", [(8, 8), (4, 4, 4)])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_an_instance_is_encoded_alone(norm: str, sides) -> None:
    torch.manual_seed(0)
    net = ResNet20(1, norm=norm, spatial=len(sides)).double()
    x = torch.randn(3, 1, *sides, dtype=torch.float64)
    together = net(x)[:1]
    # Of one small volume the last stage keeps one value a channel, which batch statistics refuse: two of them.
    alone = net(x[:2])[:1]
    # Group normalization in training mode, batch normalization in evaluation mode only.
    assert torch.allclose(together, alone, rtol=1e-9) == (norm == "group")
    net.eval()
    assert torch.allclose(net(x)[:1], net(x[:1]), rtol=1e-9)


@pytest.mark.parametrize("sides", [(8, 8), (4, 8, 4)])
def test_gradients_reach_every_weight(sides) -> None:
    net = ResNet20(1, spatial=len(sides))
    net(torch.randn(2, 1, *sides)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() and p.grad.any() for p in net.parameters())


def test_an_unknown_normalization_is_refused() -> None:
    with pytest.raises(ConfigError, match="`norm` as one of 'group', 'batch', got 'layer'"):
        ResNet20(1, norm="layer")


def test_resnet20_3d_trains_on_a_volume_as_the_only_instance() -> None:
    shape = (1, 4, 6, 5)
    rng = np.random.default_rng(0)
    volumes = [rng.normal(size=(1, *shape)).astype(np.float32) for _ in range(6)]
    bags = Bags.from_list(volumes, [0, 1] * 3)
    trainer = train(settings(encoder="resnet20-3d", epochs=1, estimator="minibatch"), bags)
    assert np.isfinite(predict(trainer.model, bags)).all()
    assert trainer.members[0].model.encoder.stem[0].weight.shape == (16, 1, 3, 3, 3)


@pytest.mark.parametrize("estimator", ["vrsp", "minibatch", "exact"])
def test_batch_normalization_is_warned_of(estimator) -> None:
    with pytest.warns(UserWarning, match=rf"batch normalization \(at 'stem.1', 19 in all\).*{estimator}") as seen:
        build_method(
            Settings(encoder="resnet20", norm="batch", estimator=estimator), instance_shape=(1, 8, 8), num_bags=4
        )
    assert len(seen) == 1


def test_a_network_of_the_user_trains_and_its_width_is_found(own) -> None:
    config = settings(encoder=f"{own}.Tiny", encoder_args={"channels": 2, "width": 6})
    encoder = train(config, images()).members[0].model.encoder
    assert (encoder.out_features, type(encoder.module).__name__) == (6, "Tiny")
    x = torch.randn(3, *SHAPE)
    assert torch.allclose(encoder(x), encoder.module(x).mean(dim=(2, 3)), atol=1e-6)


def test_a_function_may_make_the_network_and_lazy_layers_find_their_input(own) -> None:
    encoder = build_encoder(
        Settings(encoder=f"{own}.linear", encoder_args={"width": 4}), instance_shape=(2, 3), pretrained=True
    )
    assert encoder.out_features == 4
    assert encoder(torch.zeros(5, 2, 3)).shape == (5, 4)


def test_one_number_an_instance_is_a_width_of_one() -> None:
    net = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    encoder = Encoder(net, instance_shape=(3,))
    assert (encoder.out_features, encoder(torch.zeros(4, 3)).shape) == (1, (4, 1))


def test_the_trial_run_changes_nothing() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
    net[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    Encoder(net, instance_shape=(3,))
    assert [layer.training for layer in net.modules()] == [True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"encoder": "resnet"}, "known encoder, got 'resnet'; did you mean 'resnet20'"),
        (
            {"encoder": "no_such_package.Net"},
            "known encoder, got 'no_such_package.Net'; known are",
        ),
        ({"encoder": "own_network.number"}, "torch.nn.Module as the encoder 'own_network.number', got int"),
        (
            {"encoder": "own_network.Tiny"},
            "argument .channels. of the encoder .own_network.Tiny. in encoder_args, got none",
        ),
        ({"encoder": "own_network.Tiny", "encoder_args": {"channels": 3}}, r"shape \[2, 8, 8\].*channels"),
        ({"encoder": "own_network.Asserts"}, "encoder_args that own_network.Asserts takes.*AssertionError: never made"),
        ({"encoder": "own_network.Odd"}, "ArithmeticError: odd; correct encoder_args, or the code"),
        ({"encoder": "own_network.Pair"}, r"one row of numbers.*got tuple"),
        ({"encoder": "own_network.Sum"}, r"one row of numbers.*got torch.float32 \[\]"),
        ({"encoder": "resnet20", "encoder_args": {"a": 1}}, "encoder 'resnet20' in encoder_args, got 'a'; known are"),
        ({"encoder": "resnet20", "hidden": [3]}, r"no `hidden` with the encoder 'resnet20', got \[3\]"),
        ({"encoder": "own_network.Sum", "norm": "batch"}, "no `norm` with the encoder 'own_network.Sum'"),
        ({"encoder": "resnet20-3d"}, r"channels, depth, height, width\].*got \[2, 8, 8\].*--volume"),
        ({"encoder": "resnet20", "freeze": ["stemm"]}, "freeze, got 'stemm'; did you mean 'stem'"),
        ({"encoder": "resnet20", "freeze": ["zzz"]}, "freeze, got 'zzz'; known are blocks"),
        ({"encoder": "resnet20", "freeze": ["bloc"]}, "freeze, got 'bloc'"),
    ],
)
def test_what_cannot_be_an_encoder_says_why(own, changes, text) -> None:
    with pytest.raises(ConfigError, match=text):
        build_method(Settings(**changes), instance_shape=SHAPE, num_bags=4)


def test_weights_come_from_a_file_and_an_ensemble_to_be_filled_needs_none(own, tmp_path) -> None:
    config = settings(encoder=f"{own}.Tiny", encoder_args={"channels": 2}, encoder_weights=str(tmp_path / "w.pt"))
    torch.manual_seed(9)
    net = make_module(config.model.encoder, {}, config.model.encoder_args)
    for content in (net.state_dict(), {"state_dict": net.state_dict(), "epoch": 3}):
        torch.save(content, tmp_path / "w.pt")
        model = build_method(config, instance_shape=SHAPE, num_bags=4).model
        assert torch.equal(weights(model.encoder.module), weights(net))
    (tmp_path / "w.pt").unlink()
    assert not torch.equal(weights(build_ensemble(config, instance_shape=SHAPE).members[0].encoder), weights(net))
    with pytest.raises(ConfigError, match="file of weights, got nothing at"):
        build_method(config, instance_shape=SHAPE, num_bags=4)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"0.weight": torch.zeros(2, 3)}, "missing 0.bias"),
        ({"0.weight": torch.zeros(2, 3), "0.bias": torch.zeros(2), "fc": torch.zeros(1)}, "unexpected fc"),
        ({f"{i}": torch.zeros(1) for i in range(9)}, "missing 0.weight, 0.bias; unexpected 0, 1, 2, 3, 4 and 4 more"),
        ({"0.weight": torch.zeros(2, 4), "0.bias": torch.zeros(2)}, r"0.weight of shape \[2, 3\], got \[2, 4\]"),
        ([torch.zeros(1)], "state dictionary of tensors"),
        ({0: torch.zeros(1)}, "state dictionary of tensors by name"),
        ({"0.weight": print}, "state dictionary written by torch.save"),
        (None, "state dictionary written by torch.save"),
    ],
)
def test_weights_that_do_not_fit_are_refused(content, text, tmp_path) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    before = weights(net)
    path = tmp_path / "w.pt"
    path.write_bytes(b"no weights") if content is None else torch.save(content, path)
    with pytest.raises(ConfigError, match=text):
        load_weights(net, path)
    assert torch.equal(weights(net), before)


@pytest.mark.parametrize(
    "weight",
    [
        torch.full((2, 3), math.nan),
        torch.full((2, 3), math.inf),
        torch.zeros(2, 3, dtype=torch.complex64),
        torch.zeros(2, 3).to_sparse(),
        torch.zeros(2, 3, device="meta"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_refused(weight, tmp_path) -> None:
    path = tmp_path / "w.pt"
    torch.save({"weight": weight, "bias": torch.zeros(2)}, path)
    with pytest.raises(ConfigError, match=r"finite numbers in weight, got others \(in .*w\.pt\)"):
        load_weights(nn.Linear(3, 2), path)


def test_a_flipped_bit_of_a_weight_is_refused(tmp_path) -> None:
    path = tmp_path / "w.pt"
    torch.save({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, path)
    path.write_bytes(path.read_bytes().replace(torch.ones(6).numpy().tobytes(), torch.ones(6).neg().numpy().tobytes()))
    with pytest.raises(ConfigError, match="checksum"):
        load_weights(nn.Linear(3, 2), path)


@pytest.mark.parametrize("content", [nn.Linear(3, 2), {"0.weight": print}])
def test_pickled_networks_are_refused_without_advice_to_unpickle_them(content, tmp_path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"holds more than tensors.*save module\.state_dict") as refused:
        load_weights(nn.Linear(3, 2), tmp_path / "w.pt")
    assert "weights_only" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_safetensors_are_read_where_the_package_is_installed(tmp_path) -> None:
    net = nn.Linear(3, 2)
    header = json.dumps(
        {
            "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
        }
    ).encode()
    numbers = np.arange(8, dtype="<f4")
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers.tobytes())
    if importlib.util.find_spec("safetensors") is None:
        with pytest.raises(MidamError, match="pip install safetensors"):
            load_weights(net, path)
        return
    load_weights(net, path)
    assert weights(net).tolist() == numbers.tolist()
    path.write_bytes(b"torn")
    with pytest.raises(ConfigError, match="safetensors file"):
        load_weights(net, path)


def test_frozen_parts_stay_whatever_is_trained(own, tmp_path) -> None:
    arguments = {"channels": 2, "normed": True, "dropout": 0.5}
    torch.save(make_module(f"{own}.Tiny", {}, arguments).state_dict(), tmp_path / "w.pt")
    config = settings(
        encoder=f"{own}.Tiny", encoder_args=arguments, encoder_weights=str(tmp_path / "w.pt"), freeze=["stem"], lr=0.5
    )
    encoder = train(config, images()).members[0].model.encoder
    before = torch.load(tmp_path / "w.pt", weights_only=True)
    changed = {name for name, value in encoder.module.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"top.weight", "top.bias"}
    assert batch_norms(encoder) == []
    assert not encoder.train().module.stem[1].training
    assert encoder.module.drop.training


def test_a_frozen_part_may_have_statistics_alone(own) -> None:
    config = settings(encoder=f"{own}.Still", freeze=["norm"], estimator="minibatch", standardize=False)
    net = train(config, images()).members[0].model.encoder.module
    assert net.norm.num_batches_tracked == 0
    assert not net.norm.training
    assert net.top.training


def test_a_network_may_compute_in_half_precision(own) -> None:
    config = settings(encoder=f"{own}.Half", encoder_args={"channels": 2}, epochs=1)
    for estimator in ("vrsp", "exact"):
        trainer = train(Settings(**{**vars(config), "estimator": estimator}), images())
        assert np.isfinite(predict(trainer.model, images())).all()


@pytest.mark.parametrize(
    ("shape", "name", "members", "start", "threads"),
    [
        ((192,), "mlp", 3, 0.0, 1),
        ((3, 8, 8), "resnet20", 1, 0.5, 0),
        ((1, 4, 8, 8), "resnet20-3d", 1, 0.5, 0),
        ((5, 192), "mlp", 3, 0.0, 1),
        ((1, 1, 192), "mlp", 3, 0.0, 1),
    ],
)
def test_the_encoder_fits_the_instances_unless_it_is_named(shape, name, members, start, threads) -> None:
    found = Settings().resolve(shape)
    assert (found.model.encoder, found.training.members) == (name, members)
    assert (found.method.center_start, found.run.threads) == (start, threads)
    assert primal(found) == (("sgd", 0.05) if name == "mlp" else ("adam", 0.0003))
    assert found.resolve((192,)) == found
    own, named = (build_method(c, instance_shape=shape, num_bags=4).model for c in (Settings(), found))
    assert torch.equal(weights(own), weights(named))
    assert len(build_ensemble(Settings(), instance_shape=shape).members) == members
    kept = Settings(encoder="mlp").resolve(shape)
    assert (kept.model.encoder, *primal(kept)) == ("mlp", "sgd", 0.05)
    for optimizer, rates in (("sgd", (0.05, 0.01)), ("adam", (0.001, 0.0003))):
        assert primal(Settings(optimizer=optimizer).resolve(shape)) == (optimizer, rates[name != "mlp"])
    assert Settings(lr=0.2).resolve(shape).training.lr == 0.2


def primal(settings):
    return settings.training.optimizer, settings.training.lr


@pytest.mark.filterwarnings("ignore::UserWarning")  # of few bags
def test_a_run_notes_the_encoder_that_fits_its_instances(tmp_path) -> None:
    bags, run = images(20), RunFolder(tmp_path / "run")
    np.savez(tmp_path / "d.npz", X=bags.instances, bag=np.repeat(np.arange(20), bags.sizes), y=bags.labels)
    fit_run(str(tmp_path / "d.npz"), Settings(epochs=1, num_instances=2), run)
    assert read_run_config(run)[0].model.encoder == "resnet20"
    assert load_run(run.root).settings.model.encoder == "resnet20"


def test_a_part_is_whole_names_only() -> None:
    net = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(11)])
    encoder = Encoder(net, instance_shape=(2,), freeze=["1"])
    assert [name for name, p in encoder.module.named_parameters() if not p.requires_grad] == ["1.weight"]


def test_freezing_leaves_the_gradient_of_the_rest() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 1, 8, 8)
    gradients = []
    for freeze in ([], ["stem", "blocks.0", "blocks.8.conv1"]):
        torch.manual_seed(1)
        encoder = Encoder(ResNet20(1), instance_shape=(1, 8, 8), freeze=freeze)
        encoder(x).square().sum().backward()
        gradients.append({name: p.grad for name, p in encoder.module.named_parameters() if p.grad is not None})
    assert set(gradients[0]) - set(gradients[1]) == {
        name for name in gradients[0] if name.startswith(("stem.", "blocks.0.", "blocks.8.conv1."))
    }
    assert all(torch.allclose(gradients[0][name], grad, rtol=1e-5) for name, grad in gradients[1].items())


def test_a_wholly_frozen_encoder_runs_without_a_graph_and_the_head_trains(own) -> None:
    config = settings(encoder=f"{own}.Tiny", encoder_args={"channels": 2, "dropout": 0.9}, freeze=["*"], epochs=1)
    for estimator in ("vrsp", "exact"):
        trainer = Trainer(Settings(**{**vars(config), "estimator": estimator, "chunk_size": 4}), images())
        model = trainer.members[0].model
        encoder, head = weights(model.encoder), weights(model.pooling)
        trainer.train_epoch()
        assert torch.equal(weights(model.encoder), encoder)
        assert not torch.equal(weights(model.pooling), head)
        x = torch.rand(4, *SHAPE)
        assert not model.encoder(x).requires_grad
        assert torch.equal(model.encoder(x), model.encoder(x)), "frozen dropout is off"


def test_freezing_random_weights_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"freeze=\['stem'\] keeps the random weights of resnet20"):
        build_encoder(Settings(encoder="resnet20", freeze=["stem"]), instance_shape=(1, 8, 8))


@pytest.mark.parametrize("estimator", ["vrsp", "minibatch", "exact", "exact-point"])
def test_checkpointing_changes_no_result(own, estimator) -> None:
    dropout = 0.0 if estimator == "exact-point" else 0.4
    config = {"encoder": f"{own}.Tiny", "encoder_args": {"channels": 2, "dropout": dropout}, "estimator": estimator}
    if estimator == "exact":
        # Chunks of 8 instances and parts of 1: the same noise only where the layers draw it one instance at a time.
        config["chunk_size"] = 8
    plain = train(settings(**config, precision="32-true"), images())
    saved = train(settings(**config, checkpointing=True), images())
    if dropout:
        # Parts draw their noise one after the other, so the numbers differ; two runs agree to the last bit.
        again = train(settings(**config, checkpointing=True), images())
        assert torch.equal(weights(saved.model), weights(again.model))
    else:
        assert torch.allclose(weights(saved.model), weights(plain.model), rtol=1e-4, atol=1e-6)
    assert saved.model.state_dict().keys() == plain.model.state_dict().keys()


def test_checkpointing_replays_the_dropout_of_the_forward_pass() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    x = torch.randn(10, 3)
    out = Checkpointed(net)(x)
    out.sum().backward()
    kept = (out.detach() != 0).float()
    # d sum / d bias counts the units that the forward pass kept, each scaled by 1 / (1 - p).
    assert torch.allclose(net[0].bias.grad, 2 * kept.sum(dim=0))


def test_checkpointing_keeps_a_fraction_of_the_activations() -> None:
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.Tanh())])
    x = torch.randn(64, 16)

    def saved(encoder):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            encoder(x)
        return sum(sizes)

    assert saved(Checkpointed(net)) < saved(net) / 4


def test_checkpointing_refuses_batch_statistics() -> None:
    with pytest.raises(ConfigError, match="checkpointing, got batch normalization at '0'"):
        Checkpointed(nn.Sequential(nn.BatchNorm1d(3)))
    Checkpointed(nn.Sequential(nn.BatchNorm1d(3)).eval())


def test_a_run_with_a_network_of_the_user_is_saved_loaded_and_missed(own, tmp_path) -> None:
    bags = images(20)
    np.savez(
        tmp_path / "d.npz",
        X=bags.instances,
        bag=np.repeat(np.arange(20), bags.sizes),
        y=bags.labels,
    )
    few = {"epochs": 1, "num_positive": 3, "num_negative": 3, "num_instances": 2, "lr": 0.05}
    config = Settings(encoder=f"{own}.Tiny", encoder_args={"channels": 2}, **few)
    folder = RunFolder(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few validation bags
        fit_run(str(tmp_path / "d.npz"), config, folder)
    run = load_run(folder.root)
    assert run.model.members[0].encoder.out_features == 5
    assert torch.equal(weights(run.model), torch.cat([w.flatten() for w in saved_weights(folder)]))
    assert np.isfinite(predict(run.model, bags)).all()
    forget()
    with pytest.raises(ConfigError, match=r"got 'own_network.Tiny' \(in .*model\.pt\), which the plug-in own_network"):
        load_run(folder.root)


# torch itself still uses what it calls deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # on Python 3.13.0 alone
@pytest.mark.slow
@pytest.mark.long  # the compiler of torch takes seconds to import, and inductor starts g++
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_step_agrees_and_compiles_once(backend, monkeypatch) -> None:
    import torch._dynamo

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch.compiler.reset()
    config = {"encoder": "mlp", "hidden": [4], "members": 2, "epochs": 3}
    plain = train(settings(**config), images())
    counts = torch._dynamo.utils.counters["stats"]
    counts.clear()
    trainer = Trainer(settings(**config, compile=True), images(), images(8, seed=1))
    graphs = []
    while not trainer.finished:
        trainer.train_epoch()
        graphs.append(counts["unique_graphs"])
    assert graphs[0] >= 1
    assert graphs[-1] == graphs[0], "a graph was compiled after the first epoch"
    assert torch.allclose(weights(trainer.model), weights(plain.model), rtol=1e-5, atol=1e-5)
    assert trainer.model.state_dict().keys() == plain.model.state_dict().keys()


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{}, {"precision": "bf16-mixed"}])
def test_a_step_on_a_gpu_never_waits_for_it(changes) -> None:
    bags = images(16, shape=(3, 16, 16))
    trainer = Trainer(settings(encoder="resnet20", accelerator="cuda", **changes), bags)
    trainer.train_epoch()
    member = trainer.members[0]
    from midam.train.loop import train_step

    batches = list(member.batches(trainer._reader, trainer._labels))
    torch.cuda.set_sync_debug_mode("error")
    try:
        with trainer.fabric.autocast():
            for batch in batches:
                train_step(
                    member.trained, member.estimator, member.objective, member.optimizer, batch, fabric=trainer.fabric
                )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert member.model.encoder.stem[0].weight.is_contiguous(memory_format=torch.channels_last)
