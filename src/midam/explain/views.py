"""How a slice of a scan is seen: its plane, and which sides of the patient lie at its edges."""

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from midam.data.bags import Bags

_PLACES = (
    *((0.02, 0.5, "left", "center"), (0.98, 0.5, "right", "center")),
    *((0.5, 0.98, "center", "top"), (0.5, 0.02, "center", "bottom")),
)
_UNKNOWN = "the files do not say which side is left"


class View(NamedTuple):
    """What the file of a scan says of the picture of a slice."""

    plane: str = ""  # such as "axial"; empty where that is unknown
    edges: str = ""  # letters of the sides at the left, right, upper and lower edge, such as RLAP


def views_of(bags: Bags, index: int, count: int) -> list[View]:
    """View of each of `count` scans of a bag, in their order; unknown ones where the files do not say."""
    said: list[dict[str, Any]] = [own.get("file", {}) for own in bags.described(index).values()]
    views = [View(str(own.get("plane", "")), str(own.get("edges", ""))) for own in said]
    if len(views) != count:  # files of one name in several folders
        views = [views[0] if len(set(views)) == 1 else View()] * count
    return views


def draw_view(axes: Axes, view: View) -> None:
    """Write the letters of the sides at the left and right edge, and at the upper and lower one."""
    for letter, (x, y, across, up) in zip(view.edges, _PLACES):
        text = axes.text(x, y, letter, transform=axes.transAxes, color="white", fontsize=8, ha=across, va=up)
        text.set(fontweight="bold", path_effects=[withStroke(linewidth=1.8, foreground="black")])


def view_text(view: View) -> str:
    """Plane and convention in words.

    Examples
    --------
    >>> view_text(View("axial", "RLAP"))
    "axial, radiological convention: the patient's right (R) is at the left"
    >>> view_text(View("sagittal", "APSI"))
    'sagittal, front of the patient (A) at the left'
    >>> view_text(View())
    'the files do not say which side is left'
    """
    left = {
        "R": "radiological convention: the patient's right (R) is at the left",
        "L": "the patient's left (L) is at the left, against the radiological convention",
        "A": "front of the patient (A) at the left",
        "P": "back of the patient (P) at the left",
        "S": "head of the patient (S) at the left",
        "I": "feet of the patient (I) at the left",
    }
    parts = [view.plane, left[view.edges[0]] if view.edges else _UNKNOWN]
    return ", ".join(part for part in parts if part)
