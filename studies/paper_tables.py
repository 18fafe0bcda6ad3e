"""The paper's Tables 1, 2 and 3 (Zhu et al., ICML 2023)."""

# Table 1: positive bags, negative bags, mean bag size, features.
TABLE1: dict[str, tuple[str, int, int, float, str]] = {
    "musk1": ("MUSK1", 47, 45, 5.17, "166"),
    "musk2": ("MUSK2", 39, 63, 64.69, "166"),
    "elephant": ("Elephant", 100, 100, 6.1, "230"),
    "fox": ("Fox", 100, 100, 6.6, "230"),
    "tiger": ("Tiger", 100, 100, 6.96, "230"),
    "breast": ("Breast Cancer", 26, 32, 672, "32x32x3"),
    "colon": ("Colon Ade.", 100, 1000, 256, "32x32x3"),
    "pdgm": ("PDGM", 403, 55, 155, "240x240x1"),
    "oct": ("OCT", 747, 1935, 31, "256x256x1"),
}

SETS = ("musk1", "musk2", "fox", "tiger", "elephant")
METHODS = (
    "ce-mean",
    "dam-mean",
    "ce-max",
    "dam-max",
    "ce-smx",
    "dam-smx",
    "ce-att",
    "dam-att",
    "midam-printed-smx",
    "midam-printed-att",
)
# Of the library, with the relative state; not in the paper.
OURS = ("midam-smx", "midam-att")

# Table 2: mean and standard deviation of the test AUROC over 15 trials, in the order of SETS.
TABLE2: dict[str, tuple[tuple[float, float], ...]] = {
    "ce-mean": ((0.803, 0.14), (0.805, 0.113), (0.701, 0.116), (0.822, 0.093), (0.877, 0.065)),
    "dam-mean": ((0.832, 0.147), (0.818, 0.079), (0.647, 0.111), (0.842, 0.085), (0.897, 0.053)),
    "ce-max": ((0.678, 0.121), (0.84, 0.106), (0.657, 0.147), (0.855, 0.094), (0.885, 0.044)),
    "dam-max": ((0.739, 0.126), (0.859, 0.09), (0.595, 0.159), (0.858, 0.06), (0.902, 0.073)),
    "ce-smx": ((0.769, 0.121), (0.851, 0.111), (0.668, 0.117), (0.865, 0.078), (0.902, 0.068)),
    "dam-smx": ((0.806, 0.118), (0.854, 0.108), (0.66, 0.138), (0.867, 0.07), (0.902, 0.052)),
    "ce-att": ((0.808, 0.112), (0.76, 0.122), (0.705, 0.13), (0.834, 0.09), (0.883, 0.092)),
    "dam-att": ((0.768, 0.139), (0.757, 0.154), (0.69, 0.123), (0.848, 0.067), (0.872, 0.074)),
    "midam-printed-smx": ((0.834, 0.12), (0.905, 0.068), (0.622, 0.188), (0.861, 0.071), (0.873, 0.104)),
    "midam-printed-att": ((0.826, 0.107), (0.843, 0.107), (0.733, 0.097), (0.867, 0.066), (0.906, 0.069)),
}

# Table 3: mean and standard deviation of the test AUROC over 10 trials (breast) or 5, in the order of IMAGE_SETS.
IMAGE_SETS = ("breast", "colon", "pdgm", "oct")
TABLE3: dict[str, tuple[tuple[float, float], ...]] = {
    "ce-3d": ((0.925, 0.061), (0.724, 0.165), (0.582, 0.118), (0.789, 0.032)),
    "dam-3d": ((0.725, 0.2), (0.846, 0.075), (0.545, 0.122), (0.807, 0.027)),
    "ce-mb-mean": ((0.85, 0.242), (0.883, 0.042), (0.616, 0.023), (0.799, 0.019)),
    "dam-mb-mean": ((0.875, 0.137), (0.877, 0.017), (0.635, 0.113), (0.839, 0.029)),
    "ce-mb-max": ((0.325, 0.232), (0.856, 0.032), (0.462, 0.108), (0.793, 0.047)),
    "dam-mb-max": ((0.475, 0.215), (0.825, 0.044), (0.624, 0.112), (0.841, 0.01)),
    "ce-mb-smx": ((0.575, 0.127), (0.863, 0.031), (0.491, 0.111), (0.826, 0.018)),
    "dam-mb-smx": ((0.725, 0.184), (0.905, 0.01), (0.659, 0.058), (0.829, 0.008)),
    "ce-mb-att": ((0.9, 0.146), (0.9, 0.042), (0.564, 0.072), (0.823, 0.017)),
    "dam-mb-att": ((0.875, 0.112), (0.882, 0.029), (0.624, 0.112), (0.842, 0.013)),
    "midam-printed-smx": ((0.875, 0.137), (0.91, 0.02), (0.669, 0.032), (0.848, 0.01)),
    "midam-printed-att": ((0.95, 0.1), (0.893, 0.08), (0.635, 0.052), (0.843, 0.012)),
}


def printed(name: str, method: str) -> tuple[float, float] | None:
    """Return mean and standard deviation from Table 2 or 3, or None if neither table has them.

    Examples
    --------
    >>> printed("musk2", "midam-printed-smx"), printed("colon", "midam-printed-smx")
    ((0.905, 0.068), (0.91, 0.02))
    """
    if name in IMAGE_SETS:
        return TABLE3[method][IMAGE_SETS.index(name)] if method in TABLE3 else None
    return TABLE2[method][SETS.index(name)] if name in SETS and method in TABLE2 else None


def label(method: str) -> str:
    """Return the paper's name of a method; the library's MIDAM has a state that is relative to the step.

    Examples
    --------
    >>> label("midam-printed-smx"), label("ce-mb-att"), label("ce-3d"), label("midam-smx")
    ('MIDAM (smx)', 'CE (MB-att)', 'CE (3D)', 'MIDAM (smx), relative')
    """
    if method in OURS:
        return f"{label(method.replace('midam-', 'midam-printed-'))}, relative"
    objective, *estimator, pooling = method.replace("midam-printed-", "midam-").replace("3d", "3D").split("-")
    inner = f"MB-{pooling}" if estimator == ["mb"] else "-".join([*estimator, pooling])
    return f"{objective.upper()} ({inner})"
