"""Time one training step: midam, LibAUC, and the bare network, step by step in turn.

    python benchmarks/step_time.py --write

Cases: 16 bags of 8 drawn instances, the default (`--num-instances` tries others), data in memory. `features-*`: 166
features an instance, one tanh layer as wide as the input. `resnet20-attention`: patches of 32 x 32 x 3.

- `midam`: draw, gather, forward, loss, backward, optimizer, dual step and commit of the tracked state, by the same
  parts that `midam fit` uses with its default settings: features are standardized once, in memory, images at each step.
  The draws of an epoch are made together; the share of one step is added.
- `midam-compiled`: the same, but network, estimator and objective through torch.compile (the optimizer is already
  fused).
- `libauc`: LibAUC 2.0.1's loss, optimizer and network, in its loop over bags (`MIL_sampling`); its bags are chosen and
  its features are standardized before.
- `bare`: the network (encoder and the head that emits z and v) on one fixed batch, sum, backward, torch's own fused SGD
  (midam's takes the same kernel without torch's hooks); no sampling, no standardizer, no pooling, no objective.
"""

import argparse
import contextlib
import datetime
import io
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import midam
from midam.data.bags import Bags
from midam.data.sampling import BagSampler
from midam.settings import Settings
from midam.settings.training import TrainingSettings
from midam.train.loop import Training, train_step
from midam.train.trainer import build_training
from studies.peers import load_libauc

PAGE = Path(__file__).parents[1] / "records" / "step_time.md"
CASES = {
    "features-attention": ("attention", (166,)),
    "features-smoothed-max": ("smoothed-max", (166,)),
    "resnet20-attention": ("attention", (3, 32, 32)),
}
MEMBERS = ("midam", "midam-compiled", "libauc", "bare")
BAGS, BAG_SIZE = 96, 40
USUAL = TrainingSettings().num_instances
WARM_UP = 10

Step = Callable[[], object]


def make_bags(shape: tuple[int, ...]) -> Bags:
    """Return bags of standard normal instances, every second bag positive."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((BAGS, BAG_SIZE, *shape), dtype=np.float32)
    return Bags.from_list(list(rows), labels=[i % 2 for i in range(BAGS)])


def make_training(pooling: str, bags: Bags, drawn: int) -> Training:
    """Return a training as the trainer makes it, with the optimizer settings of LibAUC in torch's optimizer."""
    encoder = "resnet20" if len(bags.instance_shape) > 1 else "mlp"
    given = {"pooling": pooling, "optimizer": "sgd", "lr": 0.01, "encoder": encoder, "num_instances": drawn}
    training = build_training(Settings.from_flat(given), bags)
    training.trained.train()
    return training


def make_sampler(bags: Bags, *, num_instances: int | None) -> BagSampler:
    return BagSampler(bags.require_labels(), bags.sizes, num_instances=num_instances)


def endless(training: Training) -> Iterator[Any]:
    """Yield the trainer's batches, epoch after epoch."""
    while True:
        yield from training.batches()


def midam_step(pooling: str, bags: Bags, drawn: int, *, compiled: bool) -> Step:
    training = make_training(pooling, bags, drawn)
    batches = endless(training)
    if compiled:
        training.estimator.compile()
        training.objective.compile()
    parts = training.trained, training.estimator, training.objective, training.optimizer
    return lambda: train_step(*parts, next(batches))


def bare_step(pooling: str, bags: Bags, drawn: int) -> Step:
    training = make_training(pooling, bags, drawn)
    x = next(endless(training)).x
    if training.trained.standardizer is not None:
        x = training.trained.standardizer(x)
    model, settings = training.trained, {"lr": 0.01, "momentum": 0.1, "dampening": 0.1, "weight_decay": 1e-4}
    optimizer = torch.optim.SGD(model.parameters(), fused=True, **settings)

    def step() -> None:
        z, v = model.pooling(model.encoder(x))
        optimizer.zero_grad()
        (z.sum() + v.sum() if v.shape[1] else z.sum()).backward()
        optimizer.step()

    return step


def libauc_step(pooling: str, bags: Bags, drawn: int) -> Step:
    """Return a step of LibAUC's loop, as in its tutorial and with its settings."""
    peer = load_libauc()
    attention = pooling == "attention"
    with contextlib.redirect_stdout(io.StringIO()):  # LibAUC's network and optimizer print.
        model = _libauc_network(peer, bags.instance_shape, attention=attention)
        loss_fn = peer.mil.MIDAMLoss(mode="attention" if attention else "softmax", data_len=len(bags), margin=1.0)
        optimizer = peer.midam.MIDAM(model.parameters(), loss_fn=loss_fn, lr=0.01, momentum=0.1, weight_decay=1e-4)
    arrays = [np.array(bags[i]) for i in range(len(bags))]
    labels = torch.from_numpy(bags.require_labels()).float()
    sampler = make_sampler(bags, num_instances=None)
    draws = iter([index for _ in range(500) for index in sampler.epoch().bags])
    sample: dict[str, Any] = {"model": model, "instance_batch_size": drawn, "mode": "att" if attention else "exp"}

    def step() -> None:
        index = next(draws)
        pooled = [peer.paper_utils.MIL_sampling(bag_X=arrays[i], device="cpu", **sample) for i in index.tolist()]
        if attention:
            prediction: Any = [torch.cat([p[k] for p in pooled]) for k in range(2)]
        else:
            prediction = torch.cat(pooled)
        loss = loss_fn(y_pred=prediction, y_true=labels[index].view(-1, 1), index=index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _libauc_network(peer: Any, shape: tuple[int, ...], *, attention: bool) -> torch.nn.Module:
    models = peer.mil_models
    if len(shape) > 1:
        return models.ResNet20_stoc_att(inchannels=shape[0])
    if attention:
        return models.FFNN_stoc_att(input_dim=shape[0], hidden_sizes=shape, num_classes=1)
    return models.FFNN(input_dim=shape[0], hidden_sizes=shape, last_activation="sigmoid", num_classes=1)


def draw_share(bags: Bags, drawn: int) -> float:
    """Return the milliseconds of an epoch's draws for each of its steps; median of 50 epochs."""
    sampler = make_sampler(bags, num_instances=drawn)
    return statistics.median(_timed(sampler.epoch) for _ in range(50)) / sampler.steps_per_epoch


def measure(case: str, *, repeats: int, drawn: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of one case, and notes on the members that could not run."""
    torch.compiler.reset()  # Without this, the graphs of the previous case count for the limit of recompilations.
    pooling, shape = CASES[case]
    bags = make_bags(shape)
    makers: dict[str, Callable[[], Step]] = {
        "midam": lambda: midam_step(pooling, bags, drawn, compiled=False),
        "midam-compiled": lambda: midam_step(pooling, bags, drawn, compiled=True),
        "libauc": lambda: libauc_step(pooling, bags, drawn),
        "bare": lambda: bare_step(pooling, bags, drawn),
    }
    steps, notes = {}, []
    for who, make in makers.items():
        try:
            step = make()
            for _ in range(WARM_UP):
                step()
        except Exception as error:
            # A machine without a compiler or without LibAUC still measures the other members.
            notes.append(f"{case}, {who}: not measured ({type(error).__name__}: {str(error).strip().splitlines()[0]})")
        else:
            steps[who] = step
    times: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(repeats):
        for who, step in steps.items():
            times[who].append(_timed(step))
    share = draw_share(bags, drawn)
    rows = [
        {"case": case, "who": who, "ms": statistics.median(taken) + (share if who.startswith("midam") else 0.0)}
        for who, taken in times.items()
    ]
    return rows, notes


def _timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the Markdown table of milliseconds, and of the ratios that have an aim."""
    lines = [
        "| case | midam, ms | midam-compiled, ms | LibAUC, ms | bare, ms | LibAUC / midam | midam / bare "
        "| midam-compiled / bare |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        ms = {row["who"]: row["ms"] for row in rows if row["case"] == case}
        if ms:
            cells = [f"{ms[who]:.3f}" if who in ms else "-" for who in MEMBERS]
            ratios = [("libauc", "midam"), ("midam", "bare"), ("midam-compiled", "bare")]
            cells += [f"{ms[a] / ms[b]:.2f}" if a in ms and b in ms else "-" for a, b in ratios]
            lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines


def page(lines: list[str], notes: list[str], *, command: str, counts: str) -> str:
    """Return the results page."""
    about = (__doc__ or "").split("\n\n", 2)[2].strip()
    return "\n".join(
        [
            "# Time of a training step",
            "",
            f"- Command: `{command}`",
            f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {midam.__version__}, torch {torch.__version__}, "
            f"numpy {np.__version__}, Python {platform.python_version()}, {platform.machine()} CPU, "
            f"threads: {torch.get_num_threads()}",
            f"- Median of {counts}; the members take one step each in turn.",
            "- All: SGD, momentum 0.1 (dampened), weight decay 1e-4, float32.",
            "- resnet20-attention: midam and bare use group normalization; LibAUC's ResNet20 keeps its own batch "
            "normalization, so that row compares systems, not the same network.",
            *(f"- {note}" for note in notes),
            "",
            *lines,
            "",
            about,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help='write {"rows": [{"case", "who", "ms"}]}')
    parser.add_argument("--write", action="store_true", help="write records/step_time.md")
    parser.add_argument("--repeats", type=int, help="steps of each, at least 30 (default: 200 features, 40 resnet20)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--num-instances", type=int, default=USUAL, help="instances drawn a bag, by all (not for the page)"
    )
    parser.add_argument("--case", choices=CASES, action="append", help="only these (not for the page)")
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 30:
        parser.error(f"Expected --repeats of at least 30, got {options.repeats}; a median of fewer steps is noise.")
    torch.set_num_threads(options.threads)
    rows, notes = [], []
    # A separate folder for each run: a file that another process has not completely written is no code.
    with tempfile.TemporaryDirectory(prefix="midam-inductor-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for case in options.case or CASES:
            repeats = options.repeats or (200 if case.startswith("features") else 40)
            measured, said = measure(case, repeats=repeats, drawn=options.num_instances)
            rows += measured
            notes += said
    lines = table(rows)
    print("\n".join([*lines, *notes]))
    print(f"torch {torch.__version__}, threads: {options.threads}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        counts = f"{options.repeats} steps" if options.repeats else "200 steps (features), 40 steps (resnet20)"
        asked = f" --repeats {options.repeats}" if options.repeats else ""
        shown = f"python benchmarks/step_time.py --write{asked} --threads {options.threads}"
        PAGE.write_text(page(lines, notes, command=shown, counts=counts), encoding="utf-8")


if __name__ == "__main__":
    main()
