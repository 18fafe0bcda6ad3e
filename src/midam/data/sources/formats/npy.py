"""One NumPy file a bag, ``.npy`` or ``.npz``; an array of three axes is a volume."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from midam.data.sources.formats.open_file import COORDS, FEATURES, OpenFile, pick_features, sound, squeezed
from midam.data.sources.formats.volumes import open_array
from midam.data.sources.imageoptions import VOLUMES, ImageOptions, Places
from midam.data.sources.reader import FileReader
from midam.errors import BagDataError


class NpyReader(FileReader):
    """An array [n, ...], as a memory map."""

    what = "arrays"
    suffixes = (".npy",)
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file; Python objects are refused."""
        kind = "a whole .npy file of plain numbers"
        with sound(kind, path, ValueError, OSError, EOFError, advice="write it anew with numpy.save"):
            rows = squeezed(np.lib.format.open_memmap(path, mode="r"))
        return open_array(rows, path, options, held=0, places=places) if rows.ndim == 3 else OpenFile(rows)


class NpzReader(FileReader):
    """A single array [n, ...], or ``features`` or ``feats`` and ``coords``."""

    what = "arrays"
    suffixes = (".npz",)
    parameters = VOLUMES

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Read a file; Python objects are refused."""
        if not zipfile.is_zipfile(path):
            raise BagDataError(
                f"Expected an npz archive, got another format (in {path}); write it anew with numpy.savez."
            )
        kind, damage = "a sound npz archive of plain numbers", (ValueError, OSError, EOFError, zipfile.BadZipFile)
        with (
            sound(kind, path, *damage, zlib.error, advice="write it anew with numpy.savez"),
            np.load(path, allow_pickle=False) as archive,
        ):
            names = archive.files
            known = {"features": names[0]} if len(names) == 1 else {n: n for n in (*FEATURES, COORDS) if n in names}
            arrays = {name: archive[key] for name, key in known.items()}
        features, coords = squeezed(pick_features(arrays or dict.fromkeys(names), path)), arrays.get(COORDS)
        if features.ndim == 3 and coords is None:
            return open_array(features, path, options, held=features.nbytes, places=places)
        return OpenFile(features, coords, held=features.nbytes + (0 if coords is None else coords.nbytes))
