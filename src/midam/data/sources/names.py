"""Match the names that tables use for slides with the names of files."""

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from midam.errors import BagDataError

_SUFFIXES = (
    *(".h5", ".hdf5", ".pt", ".npy", ".npz", ".zarr", ".csv"),
    *(".svs", ".ome.tiff", ".ome.tif", ".tiff", ".tif", ".ndpi", ".mrxs", ".scn", ".bif", ".czi", ".vms", ".vmu"),
    *(".dcm", ".nii.gz", ".nii", ".png", ".jpeg", ".jpg"),
)


def file_suffix(path: Path) -> str:
    """Suffix of a file in lower case; of NIfTI that is compressed, both.

    Examples
    --------
    >>> file_suffix(Path("a.B.PNG")), file_suffix(Path("scan.nii.gz"))
    ('.png', '.nii.gz')
    """
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def file_name(path: Path) -> str:
    """Name of a file without suffix, or of a folder.

    Examples
    --------
    >>> file_name(Path("scan.1.nii.gz"))
    'scan.1'
    """
    return (
        path.name
        if path.suffix == "" or (path.is_dir() and path.suffix != ".zarr")
        else path.name[: -len(file_suffix(path))]
    )


def strip_suffix(name: str) -> str:
    """Remove the suffixes of features and slides; dots that belong to a name stay.

    Examples
    --------
    >>> strip_suffix("TCGA-A1.0B9F.svs"), strip_suffix("a.svs.h5"), strip_suffix("b.1")
    ('TCGA-A1.0B9F', 'a', 'b.1')
    """
    lowered = name.lower()
    for suffix in _SUFFIXES:
        if lowered.endswith(suffix) and len(name) > len(suffix):
            return strip_suffix(name[: -len(suffix)])
    return name


class NameIndex:
    """Finds files by the names that a table uses for them: with or without folder and suffix, in any case.

    Parameters
    ----------
    names : sequence of str
        Names of the files, without suffix.

    Examples
    --------
    >>> index = NameIndex(["A.1", "b"])
    >>> index.find("slides/A.1.svs"), index.find("B.h5"), index.find("c")
    (0, 1, None)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._levels: list[dict[str, list[int]]] = [{}, {}, {}]
        for position, name in enumerate(self.names):
            for level, key in zip(self._levels, _keys(name)):
                level.setdefault(key, []).append(position)

    def find(self, name: str) -> int | None:
        """Position of the file of that name; None where there is none.

        Raises
        ------
        BagDataError
            If several files go by that name, and none of them exactly.
        """
        for level, key in zip(self._levels, _keys(name)):
            found = level.get(key, [])
            if len(found) == 1:
                return found[0]
            if found:
                raise BagDataError(
                    f"Expected one file of the name {name!r}, got {self.names[found[0]]!r} and "
                    f"{self.names[found[1]]!r}; rename one, or write the name in the table as that of the file."
                )
        return None

    def count(self, values: Iterable[str]) -> int:
        """Count the values that name a file."""
        known = [level.keys() for level in self._levels]
        return sum(any(key in keys for keys, key in zip(known, _keys(value))) for value in values)


def first_names(names: Sequence[str], *, limit: int = 5) -> str:
    """The first few names, and how many there are beside them."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _keys(name: str) -> tuple[str, str, str]:
    """Forms of a name, the exact one first."""
    plain = strip_suffix(PurePosixPath(name.strip().replace("\\", "/")).name)
    return name.strip(), plain, plain.casefold()
