import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import midam
from midam.errors import ConfigError
from midam.nn.pooling import MeanPooling, SmoothedMaxPooling
from midam.registry import ENCODERS, POOLINGS
from midam.settings import (
    CutSettings,
    MethodSettings,
    ResolvedSettings,
    RunSettings,
    Settings,
    TrainingSettings,
    member_seed,
    read_yaml,
    usual_chunk,
    yaml_text,
)
from midam.settings.settings import describe_settings, groups


def test_settings_survive_yaml(tmp_path):
    settings = Settings(
        lr=1e-5,
        hidden=[8, 4],
        window=(0, 400),
        pooling="noisy-and",
        pooling_args={"slope": 3.0},
        groups="pätient",
    )
    path = tmp_path / "c.yaml"
    path.write_text(yaml_text(settings.flat()), encoding="utf-8")
    assert Settings.from_flat(read_yaml(path)) == settings
    resolved = settings.resolve((5,))
    path.write_text(yaml_text(resolved.flat()), encoding="utf-8")
    assert Settings.from_flat(read_yaml(path)).resolve((5,)) == resolved


def test_flat_names_are_unique_and_lead_to_their_group():
    flat = Settings().flat()
    assert list(flat) == Settings.names() == [name for _, group in groups().values() for name in group.model_fields]
    assert not set(flat) & set(groups())
    assert Settings(epochs=3).training.epochs == 3
    assert Settings(training=TrainingSettings(epochs=3, members=1), lr=0.5) == Settings(epochs=3, members=1, lr=0.5)
    assert Settings.names("data", "cut")[0] == "bag_column"


def test_what_goes_by_the_instances_is_named():
    vectors, images, volumes = (Settings().resolve(shape) for shape in [(1024,), (3, 32, 32), (1, 16, 16, 16)])
    assert [found.model.encoder for found in (vectors, images, volumes)] == ["mlp", "resnet20", "resnet20-3d"]
    assert [found.model.clip for found in (vectors, images, volumes)] == [3, 10, 10]
    assert [found.training.members for found in (vectors, images, volumes)] == [3, 1, 1]
    assert [found.training.lr for found in (vectors, images, volumes)] == [0.05, 0.0003, 0.0003]
    assert [found.training.optimizer for found in (vectors, images, volumes)] == ["sgd", "adam", "adam"]
    assert [found.method.center_start for found in (vectors, images, volumes)] == [0, 0.5, 0.5]
    assert [found.run.threads for found in (vectors, images, volumes)] == [1, 0, 0]
    assert [found.run.chunk_size for found in (vectors, images, volumes)] == [4096, 170, 128]
    assert Settings().resolve((1, 1, 192)).model.encoder == "mlp"
    assert Settings(optimizer="sgd").resolve((3, 32, 32)).training.lr == 0.01
    assert Settings(optimizer="adam").resolve((5,)).training.lr == 0.001
    assert Settings(encoder="mlp").resolve((3, 32, 32)).training.optimizer == "sgd"


def test_what_was_asked_for_is_kept():
    asked = {
        "encoder": "mlp",
        "optimizer": "adam",
        "lr": 0.2,
        "members": 2,
        "center_start": 0.25,
        "clip": 2.0,
        "chunk_size": 7,
        "threads": 3,
    }
    flat = Settings(**asked).resolve((3, 32, 32)).flat()
    assert {name: flat[name] for name in asked} == asked


def test_resolved_settings_are_a_type_of_their_own():
    resolved = Settings().resolve((5,))
    assert isinstance(resolved, ResolvedSettings)
    assert resolved.resolve((5,)) == resolved
    assert isinstance(resolved.replace(seed=3), ResolvedSettings)
    for name in ("encoder", "optimizer"):
        with pytest.raises(ConfigError, match=name):
            resolved.replace(**{name: "auto"})
    for name in ("lr", "members", "center_start", "clip", "chunk_size", "threads"):
        with pytest.raises(ConfigError, match=name):
            resolved.replace(**{name: None})
    with pytest.raises(ConfigError, match="method"):
        ResolvedSettings()


def test_usual_chunks_hold_half_a_million_numbers():
    assert usual_chunk((1, 240, 240)) * 240**2 <= 2**19 < (usual_chunk((1, 240, 240)) + 1) * 240**2
    assert usual_chunk((1, 256, 256, 256)) == 1


def test_numbers_take_the_type_of_their_setting():
    training = Settings(lr=1, epochs=np.int64(3), decay_at=[np.float32(0.5)]).training
    assert (type(training.lr), type(training.epochs), type(training.decay_at[0])) == (float, int, float)
    model = Settings(hidden=(np.int32(4), 2), standardize=np.bool_(False)).model
    assert model.hidden == (4, 2)
    assert {type(width) for width in model.hidden} == {int}
    assert model.standardize is False


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("members", 0, "`members`, got 0: input should be greater than or equal to 1;"),
        ("epochs", 0, "`epochs`, got 0: input should be greater than or equal to 1;"),
        ("epochs", 2.0, "`epochs`, got 2.0: input should be a valid integer;"),
        ("epochs", True, "got True"),
        ("epochs", "3", "`epochs`, got '3': input should be a valid integer;"),
        ("num_instances", "atuo", "`num_instances`, got 'atuo': input should be 'auto';"),
        ("num_instances", 0, "`num_instances`, got 0: input should be greater"),
        ("num_positive", 2.5, "`num_positive`, got 2.5: input should be a valid integer"),
        ("num_negative", None, "`num_negative`, got None: input should be a valid integer"),
        ("lr", 0.0, "`lr`, got 0.0: input should be greater than 0;"),
        ("lr", float("nan"), "`lr`, got nan: input should be a finite number;"),
        ("lr", float("inf"), "`lr`, got inf: input should be a finite number;"),
        ("lr", "1e-3", "`lr`, got '1e-3': input should be a valid number;"),
        ("margin", -1.0, "`margin`, got -1.0"),
        ("clip", 0.0, "`clip`, got 0.0"),
        ("state_rate", 0.0, "`state_rate`, got 0.0: input should be greater than 0"),
        ("state_rate", 1.01, "state_rate"),
        ("state_rate", float("nan"), "state_rate"),
        ("dual_lr", 2.0, "dual_lr"),
        ("momentum", 1.0, "`momentum`, got 1.0: input should be less than 1"),
        ("dropout", 1.0, "dropout"),
        ("val_fraction", -0.1, "val_fraction"),
        ("test_fraction", 0.9, r"`val_fraction` \+ `test_fraction` < 1, got 1.1"),
        ("weight_decay", -1e-9, "`weight_decay`, got -1e-09: input should be greater than or equal to 0"),
        ("weight_decay", float("nan"), "weight_decay"),
        ("seed", -1, "seed"),
        ("seed", None, "`seed`, got None: input should be a valid integer"),
        ("patience", 0, "patience"),
        ("hidden", [4, 0], "`hidden`, got 0 as entry 2: input should be greater"),
        ("hidden", 4, "`hidden`, got 4: input should be a valid list"),
        ("hidden", [4.5], "hidden"),
        ("decay_at", [0.5, 1.0], "`decay_at`, got 1.0 as entry 2: input should be less than 1"),
        ("decay_at", "0.5", "decay_at"),
        ("pooling", "attenton", "known pooling, got 'attenton'; did you mean 'attention'"),
        ("pooling", None, "`pooling`, got None: input should be a valid string"),
        ("estimator", "vrps", "did you mean 'vrsp'"),
        ("objective", "bcee", "did you mean 'bce'"),
        ("encoder", "auot", "did you mean 'auto'"),
        ("optimizer", "adamw", "`optimizer`, got 'adamw': input should be 'auto', 'sgd' or 'adam';"),
        ("groups", 3, "`groups`, got 3: input should be a valid string"),
        ("pooling_args", [], "`pooling_args`, got .*: input should be a valid dictionary"),
        ("workers", -1, "workers"),
        ("workers", 1.5, "workers"),
        ("resident", 1, "resident"),
        ("reads", "map", "reads"),
        ("val_every", 0, "val_every"),
        ("threads", -1, "threads"),
        ("patch_size", 0, "`patch_size`, got 0"),
        ("axis", 3, "`axis`, got 3: input should be less than or equal to 2"),
        ("window", [1.0], "`window`, got "),
        ("window", [400, 0], "`window` as two ascending intensities"),
        ("volume_size", [8, 8, 8], "volume=True"),
        ("model", 3, "model"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value, words):
    with pytest.raises(ConfigError, match=words) as caught:
        Settings(**{name: value})
    assert "\n" not in str(caught.value)


def test_all_faults_are_listed_together():
    with pytest.raises(ConfigError) as caught:
        Settings(epochs=0, seed=-1, lr=-1, pooling="attenton")
    assert str(caught.value).splitlines() == [
        "Expected valid settings, got 4 that are not; correct them:",
        "- Expected a known pooling, got 'attenton'; did you mean 'attention'?",
        "- Expected a valid `epochs`, got 0: input should be greater than or equal to 1; choose another value.",
        "- Expected a valid `lr`, got -1: input should be greater than 0; choose another value.",
        "- Expected a valid `seed`, got -1: input should be greater than or equal to 0; choose another value.",
    ]
    with pytest.raises(ConfigError, match=r"Expected a valid `epochs`, got 0: .*; choose another value\.$"):
        TrainingSettings(epochs=0)


def test_settings_of_another_class_are_refused():
    with pytest.raises(ConfigError, match=r"no `temperature` with the pooling 'mean', got 0.1; .* 'smoothed-max'"):
        Settings(pooling="mean", temperature=0.1)
    with pytest.raises(ConfigError, match=r"no `hidden` with the encoder 'resnet20', got \[4\]; .* 'mlp'"):
        Settings(hidden=[4]).resolve((3, 32, 32))
    with pytest.raises(ConfigError, match="no `norm` with the encoder 'mlp'"):
        Settings(norm="batch").resolve((5,))


class Fixed(SmoothedMaxPooling):
    def __init__(self, in_features, **options):
        super().__init__(in_features, **options)


def test_a_class_is_given_what_its_constructor_names(monkeypatch):
    monkeypatch.setitem(POOLINGS._added, "fixed", Fixed)
    with pytest.raises(ConfigError, match="no `temperature`"):
        Settings(pooling="fixed", temperature=0.5)
    Settings(pooling="fixed", pooling_args={"temperature": 0.5})


class Warm(MeanPooling):
    def __init__(self, in_features, *, temperature=1.0):
        super().__init__(in_features)
        self.temperature = temperature


def test_a_name_from_outside_is_known_everywhere():
    POOLINGS.add("warm", Warm)
    try:
        assert Settings(pooling="warm", temperature=0.5).method.temperature == 0.5
        assert "warm" in next(found for found in describe_settings() if found.name == "pooling").known
    finally:
        POOLINGS.remove("warm")
    with pytest.raises(ConfigError, match="known pooling"):
        Settings(pooling="warm")
    with pytest.raises(ConfigError, match=r"got 'no_such_package\.Head'; known are"):
        Settings(pooling="no_such_package.Head", temperature=0.5)


def test_ends_of_the_ranges_are_allowed():
    Settings(state_rate=1.0, dual_lr=1.0, momentum=0.0, dropout=0.0, val_fraction=0.0, weight_decay=0.0, patience=1)
    Settings(pooling="smoothed-max", temperature=0.1)
    Settings(workers=0, val_every=1, resident=False, threads=0)


def test_an_unknown_name_suggests_the_near_one():
    with pytest.raises(ConfigError, match=r"'epoch' \(in c.yaml\); did you mean 'epochs'"):
        Settings.from_flat({"epoch": 3}, source="c.yaml")
    with pytest.raises(ConfigError, match="known are accelerator, allow_leakage"):
        Settings.from_flat({"zzz": 3})
    with pytest.raises(ConfigError, match="got 1 "):
        Settings.from_flat({1: 3})
    with pytest.raises(ConfigError, match="got 'model'"):
        Settings.from_flat({"model": {}})
    for make in (Settings, Settings().replace):
        with pytest.raises(ConfigError, match="did you mean 'epochs'"):
            make(epoch=3)
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        TrainingSettings(epoch=3)


def test_settings_cannot_be_changed_from_outside():
    settings, arguments = Settings(), {"hidden": 3}
    with pytest.raises(ValueError, match="frozen"):
        settings.run.seed = 3
    kept = Settings(pooling_args=arguments)
    kept.flat()["pooling_args"]["hidden"] = 4
    assert kept.method.pooling_args == {"hidden": 3}
    assert settings.replace(seed=3) != settings == Settings()


def test_settings_are_copied_and_pickled():
    for settings in (Settings(window=[0, 1]), Settings().resolve((5,)), CutSettings(stride=3), MethodSettings()):
        assert copy.deepcopy(settings) == settings == pickle.loads(pickle.dumps(settings))


def test_equal_texts_are_one_object_wherever_they_come_from():
    text = yaml_text(Settings(encoder_weights="nonnegative").flat())
    for settings in (Settings.from_flat(read(text)), Settings(encoder_weights="".join(["non", "negative"]))):
        assert settings.model.encoder_weights is settings.method.dual_domain
        assert settings.method.pooling is Settings().method.pooling


def read(text):
    return {line.split(": ")[0]: line.split(": ")[1] for line in text.splitlines() if "nonnegative" in line}


@pytest.mark.parametrize("content", [b"a: [1\nb: }", b"\xff\xfe\x00", b"", b"- 1\n", b"word"])
def test_a_file_that_is_no_settings_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.yaml") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)


def test_yaml_runs_no_code(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"pooling: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n")
    with pytest.raises(ConfigError):
        read_yaml(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("epochs", "decay_at", "falls"),
    [
        (4, [0.5, 0.75], [0, 0, 1, 2]),
        (3, [0.5, 0.75], [0, 0, 2]),
        (1, [0.5, 0.75], [0]),
        (2, [0.1], [0, 1]),
        (3, [], [0, 0, 0]),
    ],
)
def test_rates_fall_at_fractions_of_the_epochs_and_never_before_the_first(epochs, decay_at, falls):
    training = TrainingSettings(epochs=epochs, decay_at=decay_at)
    assert [training.decays(epoch) for epoch in range(epochs)] == falls


def test_the_first_member_keeps_the_seed_and_the_others_have_their_own():
    seeds = [member_seed(seed, member) for seed in range(20) for member in range(20)]
    assert seeds[::20] == list(range(20))
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert RunSettings(seed=member_seed(2**40, 1)).seed < 2**32


def test_settings_import_no_torch():
    """Names are checked without importing what they stand for."""
    code = "import sys; sys.modules['midam'] = type(sys)('midam'); sys.modules['midam'].__path__ = [sys.argv[1]]; "
    code += "from midam.settings import Settings; Settings(pooling='mean').resolve((3, 32, 32)); "
    code += "sys.exit(sum(name.split('.')[0] in ('torch', 'pandas', 'sklearn') for name in sys.modules))"
    package = next(iter(__import__("midam").__path__))
    assert subprocess.run([sys.executable, "-c", code, package], check=False).returncode == 0


def test_the_encoders_of_the_shapes_are_known():
    for shape in [(3,), (1, 8, 8), (1, 8, 8, 8)]:
        assert Settings().resolve(shape).model.encoder in ENCODERS.names()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr: 2024-02-03\n", "'2024-02-03'"),
        ("2024-02-03: 1\n", "2024-02-03"),
        ("epochs: 3\nepochs: 5\n", "'epochs' twice"),
        ("encoder_args: " + "[" * 1000 + "]" * 1000, "YAML"),
        ("encoder_args: " + "{a: " * 40 + "1" + "}" * 40, "inside each other"),
        ("hidden: &a [*a]\n", "inside each other"),
        (
            "a: &a [x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")),
            "in all",
        ),
        ("encoder_args: {a: !!binary aGVsbG8=}\n", "bytes"),
        ("epochs: " + "9" * 5000, "YAML"),
        ("!!python/object/apply:os.system [touch made]\n", "YAML"),
        ("lr: x\n", "input should be a valid number"),
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_is_no_settings_is_refused_by_its_file(tmp_path, text, words):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        Settings.from_flat(read_yaml(path), source=str(path))
    assert "c.yaml" in str(caught.value)


@pytest.mark.parametrize("name", ["seed", "epochs", "num_instances", "threads", "chunk_size", "workers"])
def test_whole_numbers_that_torch_cannot_take_are_refused(name):
    with pytest.raises(ConfigError, match=rf"Expected a valid `{name}`, got 9{{30}}: input should be less than"):
        Settings(**{name: int("9" * 30)})


@pytest.mark.filterwarnings("ignore::UserWarning")  # of few bags
def test_a_seed_of_64_bits_serves_each_method():
    bags = midam.Bags.from_list([[[float(number % 2)]] * 2 for number in range(40)], [0, 1] * 20)
    assert sorted(midam.stratified_folds(bags.labels, folds=2, seed=2**63 - 1)) == [0] * 20 + [1] * 20
    for method in ("bag-statistics-extratrees", "mean-map-svm", "midam"):
        model = midam.MIDAMClassifier(method=method, seed=2**63 - 1, **({"epochs": 1} if method == "midam" else {}))
        assert np.isfinite(model.fit(bags).decision_function(bags)).all()
