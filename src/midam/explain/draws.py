"""How a run drew its instances: how concentrated the draws were at the end, how old the memory, what they found."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.brief import BriefRepr
from midam.data.digests import bag_digests
from midam.data.draws import Draw
from midam.data.score_memory import ScoreMemory
from midam.data.witnesses import chance_of_a_witness, counts_of
from midam.registry import DRAWS, ESTIMATORS
from midam.runs.apply import LoadedRun
from midam.runs.folder import RunFolder
from midam.settings import ResolvedSettings
from midam.train.build import build_part
from midam.train.checkpoint import TrainerContent, fitting, load_checkpoint
from midam.train.members import DEFAULT_DRAW

_COMPARED = 8  # bags by which data are known to be the run's
_REPEATS = 16  # draws of each bag

Row = dict[str, Any]


@dataclass(frozen=True, repr=False)
class DrawFacts(BriefRepr):
    """What is known of the draws of a run.

    Attributes
    ----------
    summary : dict
        As explain.json holds it: ``draw``, ``num_instances`` (None: whole bags), ``classes`` and ``witnesses`` of the
        training bags, where these are known; of draws by a memory ``epoch`` and ``memory``; ``missing`` says what is
        not there, ``"data"`` or the name of a file.
    bags : list of dict
        A row a scorer and training bag, of draws that are not uniform.
    """

    summary: dict[str, Any]
    bags: list[Row] = field(default_factory=list)


def draw_facts(folder: str | Path, run: LoadedRun, bags: Bags) -> DrawFacts:
    """Gather what the checkpoint of a run remembers of its draws, where `bags` hold its training bags.

    The rule is asked for draws of each training bag from the memory as the last epoch left it.

    Parameters
    ----------
    folder, run : str or Path, LoadedRun
        The folder of a run, and what was loaded from it.
    bags : Bags
        The run's own data; of others nothing but the name of the rule is told.

    Raises
    ------
    CheckpointError
        If ``checkpoints/last.pt`` is damaged.
    """
    settings, last = run.settings, RunFolder(Path(folder)).last
    whole = ESTIMATORS.find(settings.method.estimator).whole
    about: Row = {"draw": settings.method.draw, "num_instances": None if whole else settings.training.batch[2]}
    train = None if whole else _training_bags(run, bags)
    uniform = settings.method.draw == DEFAULT_DRAW
    if train is None or (not uniform and not last.exists()):
        missing = None if whole else "data" if train is None else str(last.relative_to(folder))
        return DrawFacts(about | {"missing": missing})
    rows = _rows_of(train, settings.training.batch[2])
    if uniform:
        return DrawFacts(about | {"classes": _by_class(rows), "witnesses": _of_witnesses(rows)})
    return _checkpointed(last, settings, train, rows, about)


def _checkpointed(last: Path, settings: ResolvedSettings, train: Bags, rows: list[Row], about: Row) -> DrawFacts:
    """The facts of what a checkpoint remembers of the training bags, each of which has one of the rows."""
    trainer = load_checkpoint(last, TrainerContent)["trainer"]
    found, passes = list[Row](), list[int]()
    for scorer, member in enumerate(trainer["members"], start=1):
        with fitting(last):
            rule = build_part(DRAWS, settings, num_bags=len(train), sizes=train.sizes)
            rule.load_state_dict(member["sampler"]["draw"])
        rule.begin_epoch(max(trainer["epoch"] - 1, 0))
        found += [{"scorer": scorer} | row for row in _asked(rows, rule, train, settings.training.batch[2])]
        passes += [] if rule.memory is None else [rule.memory.passes]
    end = (trainer["history"] or [{}])[-1]
    age = {"age": end.get("memory_age"), "drift": end.get("memory_drift")}
    about |= {"epoch": trainer["epoch"], "memory": {"passes": float(np.mean(passes)), **age} if passes else None}
    witnesses = _of_witnesses(found, settings.training.batch[2])
    if witnesses is not None and "found_witnesses" in end:
        visits = trainer["epoch"] * _visits(settings, train)
        witnesses |= {"found": end["found_witnesses"], "uniform_found": _ever_found(rows, visits)}
    return DrawFacts(about | {"classes": _by_class(found), "witnesses": witnesses}, found)


def _training_bags(run: LoadedRun, bags: Bags) -> Bags | None:
    """The run's training bags among others, in its order; None where they are not all there.

    They are known by their ids, and some of them by their content, so that not all have to be read.
    """
    places = {bag: place for place, bag in enumerate(bags.ids.tolist())}
    own = [bag for bag, split in run.splits.items() if split == "train"]
    if not own or not places.keys() >= set(own):
        return None
    train = bags.subset([places[bag] for bag in own])
    few = np.unique(np.linspace(0, len(train) - 1, _COMPARED).astype(np.int64))
    return train if all(run.contents.get(digest) == "train" for digest in bag_digests(train.subset(few))) else None


def _rows_of(train: Bags, num_instances: int) -> list[Row]:
    """A row of each training bag, and what uniform draws would hold of it."""
    # Witnesses make a bag positive: of other labels none is known.
    counts = counts_of(train) if train.outcome is None else np.zeros(len(train), dtype=np.int64)
    chances = chance_of_a_witness(train.sizes, counts, num_instances).tolist()
    return [
        {
            "bag": str(train.ids[i]),
            "label": None if train.labels is None else int(train.labels[i]),
            "instances": int(size),
            "uniform_weight": min(num_instances / int(size), 1.0),
            "witnesses": int(count),
            "uniform_witness": chance if count else None,
        }
        for i, (size, count, chance) in enumerate(zip(train.sizes, counts, chances, strict=True))
    ]


def _asked(rows: list[Row], rule: Draw, train: Bags, num_instances: int) -> list[Row]:
    """The rows with what the memory of a rule, if it has one, and its draws hold of each bag."""
    rng, every = np.random.default_rng(0), np.arange(len(train))[None]
    how: dict[str, Any] = {"width": min(num_instances, int(train.sizes.max())), "rng": rng}
    draws = [rule.draw(every, train.sizes[None], **how) for _ in range(_REPEATS)]
    found = []
    for bag, row in enumerate(rows):
        own, more = [np.unique(drawn.slots[0, bag][drawn.mask[0, bag]]) for drawn in draws], Row()
        logits = None if rule.memory is None else _logits(rule.memory, bag)
        if logits is not None:
            more |= _of_memory(logits, own)
        if row["witnesses"]:
            start = int(train.starts[bag])
            marked = np.asarray(train.witnesses)[start : start + row["instances"]]
            more["drawn_witness"] = float(np.mean([marked[slots].any() for slots in own]))
            more["witness_rank"] = None if logits is None else _rank(logits, marked)
        found.append(row | more)
    return found


def _logits(memory: ScoreMemory, bag: int) -> NDArray[np.float64]:
    """What is remembered of a bag."""
    found: NDArray[np.float64] = memory.at(np.array([bag]), np.arange(memory.sizes[bag])[None])[0].astype(np.float64)
    return found


def _of_memory(logits: NDArray[np.float64], draws: list[NDArray[np.int64]]) -> Row:
    """How many instances of a bag were seen, how many carry the remembered weight, and what draws hold of it."""
    seen = int((logits > -np.inf).sum())
    if not seen:
        return {"seen": 0, "effective": None, "drawn_weight": None}
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    held = float(np.mean([weights[slots].sum() for slots in draws]))
    return {"seen": seen, "effective": float(1 / np.square(weights).sum()), "drawn_weight": held}


def _rank(logits: NDArray[np.float64], marked: NDArray[np.bool_]) -> int | None:
    """Rank of the highest remembered witness, behind all others of its logit; None where none was seen."""
    best = logits[marked].max()
    return 1 + int((logits[~marked] >= best).sum()) if best > -np.inf else None


def _by_class(rows: list[Row]) -> dict[str, Row]:
    """What rows of bags come to, by class."""
    parts = {
        name: [row for row in rows if row["label"] == label]
        for label, name in {1: "positive", 0: "negative", None: "all"}.items()
    }
    return {name: _of_class(part) for name, part in parts.items() if part}


def _of_class(rows: list[Row]) -> Row:
    found: Row = {"bags": len({row["bag"] for row in rows})}
    found |= {"instances": float(np.median([row["instances"] for row in rows]))}
    found |= {"uniform_weight": _mean(row["uniform_weight"] for row in rows)}
    if "seen" in rows[0]:
        effective = [row["effective"] for row in rows if row["effective"] is not None]
        found["seen"] = _mean(row["seen"] / row["instances"] for row in rows)
        found["effective"] = float(np.median(effective)) if effective else None
        found["drawn_weight"] = _mean(row["drawn_weight"] for row in rows)
    return found


def _of_witnesses(rows: list[Row], num_instances: int | None = None) -> Row | None:
    """What rows of bags say of their witnesses; None where none is known. Uniform draws have no `num_instances`."""
    known = [row for row in rows if row["witnesses"]]
    if not known:
        return None
    found: Row = {"bags": len({row["bag"] for row in known}), "uniform": _mean(row["uniform_witness"] for row in known)}
    if num_instances is not None:
        found["drawn"] = _mean(row["drawn_witness"] for row in known)
    if num_instances is not None and "seen" in known[0]:
        found["among_highest"] = _mean(float((row["witness_rank"] or np.inf) <= num_instances) for row in known)
    return found


def _visits(settings: ResolvedSettings, train: Bags) -> float:
    """How often an epoch visits a positive bag, on average."""
    positives = len(train) if train.labels is None else int(train.labels.sum())
    num_positive, num_negative, _ = settings.training.batch
    own, other = min(num_positive, positives), min(num_negative, len(train) - positives)
    return -(-len(train) // (own + other)) * own / positives


def _ever_found(rows: list[Row], visits: float) -> float:
    """Share of the witnesses that uniform draws find in so many visits of each bag."""
    missed = sum(row["witnesses"] * (1 - row["uniform_weight"]) ** visits for row in rows)
    return float(1 - missed / sum(row["witnesses"] for row in rows))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
