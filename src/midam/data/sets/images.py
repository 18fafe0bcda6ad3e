"""The image sets of the paper: where they lie, how to get them, and what they hold.

Only ``adrenal`` is a single public file; the others are downloaded by hand, or are private.
"""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

from midam.data.bags import Bags
from midam.data.sets.layouts import LAYOUTS
from midam.data.sources.imageoptions import PATCHES, VOLUMES, ImageOptions, refuse_unused
from midam.data.sources.reader import OnFile
from midam.errors import BagDataError, DataNotFoundError

_ZENODO = "https://zenodo.org/records/10519652/files"


@dataclass(frozen=True)
class ImageSet:
    """An image set of the catalog, with its numbers by the default settings."""

    name: str
    description: str
    license: str
    citation: str
    bags: int
    positives: int
    instances: int
    features: str
    kind: str  # of its files: images, arrays or volumes
    url: str | None
    obtain: str
    places: tuple[str, ...]  # names under MIDAM_DATA or the cache
    digest: str = ""  # MD5 of its only file, else SHA-256 of names, sizes, labels and groups; empty: not known
    strict: bool = True  # another digest is an error; else, where other copies of the set are known, a warning
    archive: str | None = None  # address of its only file
    part: str | None = None  # read where the name has none, as in pdgm:FLAIR; None: the set has no parts
    reached: bool = False  # whether the archive was reached when the digest was noted

    @property
    def file(self) -> str:
        """Name of its only file in the cache."""
        if self.archive is None:
            raise DataNotFoundError(self.how_to_get())
        return Path(self.archive.partition("?")[0]).name

    def how_to_get(self) -> str:
        """What to do about a set that is not here."""
        where = "" if self.url is None else f" It is described at {self.url} (license: {self.license})."
        return f"Expected {self.name} in MIDAM_DATA, got none of {', '.join(self.places)}; {self.obtain}.{where}"

    def read(self, name: str, path: Path | None, options: ImageOptions, on_file: OnFile | None) -> Bags:
        """Read a set that lies here, verified as far as its digest is known."""
        if path is None:
            raise DataNotFoundError(self.how_to_get())
        refuse_unused(options, PATCHES if self.kind == "images" else VOLUMES, what=self.kind, where=name)
        part = name.partition(":")[2] or self.part
        if path.is_file():
            self._verify(path, _md5(path))
        bags = LAYOUTS[self.name](path, part, options, on_file)
        if path.is_dir() and self.digest:
            self._verify(path, listing_digest(bags))
        return bags.replace(source=name)

    def keep(self, archive: Path, target: Path) -> None:
        """Put the file that was fetched into the cache, verified."""
        self._verify(archive, _md5(archive))
        archive.replace(target)

    def offline(self, target: Path) -> str:  # noqa: ARG002
        """How to get the set without a connection."""
        return self.obtain

    def _verify(self, path: Path, found: str) -> None:
        if found == self.digest or not self.digest:
            return
        text = f"the files of {self.name} (digest {self.digest[:12]}), got others (digest {found[:12]}) (in {path})"
        if self.strict:
            raise BagDataError(f"Expected {text}; {self.obtain}.")
        warnings.warn(f"expected {text}: counts and results may differ from the published ones", stacklevel=5)


IMAGE_SETS = (
    ImageSet(
        name="breast",
        description="breast tissue (H&E), 58 images of 896x768 in patches; malignant or benign, grouped by microarray",
        license="research use",
        citation="Gelasca, Byun, Obara, Manjunath: Evaluation and benchmark for biological image segmentation, ICIP "
        "2008",
        bags=58,
        positives=26,
        instances=58 * 672,
        features="3x32x32",
        kind="images",
        url="https://bioimage.ucsb.edu/research/bio-segmentation",
        obtain="download the UCSB breast cancer cell images and put the 58 files ytma*_ccd.tif into "
        "MIDAM_DATA/ucsb_breast",
        places=("ucsb_breast", "breast", "BreastCancerCell_dataset"),
        digest="0a83ef060c0fb7b87b71f2f1b4eb532eba2a69f787744c242c07863a14e2f340",
    ),
    ImageSet(
        name="colon",
        description="colon tissue (H&E), tiles in patches; adenocarcinoma or benign, grouped by source tile",
        license="CC BY 4.0",
        citation="Borkowski, Bui, Thomas, Wilson, DeLand, Mastorides: Lung and colon cancer histopathological image "
        "dataset (LC25000), arXiv:1912.12142",
        bags=1100,
        positives=100,
        instances=1100 * 49,
        features="3x32x32",
        kind="images",
        url="https://github.com/tampapath/lung_colon_image_set",
        obtain="download LC25000, choose 100 adenocarcinomas and 1000 benign tiles, and put them into "
        "MIDAM_DATA/lc25000_colon with a labels.csv of the columns bag_id, path, label, group; the group is the tile "
        "that an image was made of, for the set holds about twenty versions of each",
        places=("lc25000_colon", "colon"),
        digest="8282dd3652eda046dc89a98eb0aef2c405f3b5505a2e4d21935e785512ca5067",
        strict=False,
    ),
    ImageSet(
        name="adrenal",
        description="AdrenalMNIST3D: shape masks of adrenal glands, 64x64x64, in slices; mass or normal, with splits",
        license="CC BY 4.0",
        citation="Yang, Shi, Wei, Liu, Zhao, Ke, Pfister, Ni: MedMNIST v2, Scientific Data 10, 2023",
        bags=1584,
        positives=350,
        instances=39878,
        features="1x64x64",
        kind="arrays",
        url="https://medmnist.com",
        obtain=f"download {_ZENODO}/adrenalmnist3d_64.npz and put it into MIDAM_DATA",
        places=("adrenalmnist3d_64.npz", "volumes/adrenalmnist3d_64.npz"),
        digest="17721accfe9fb005146a47d33bc54b2f",
        archive=f"{_ZENODO}/adrenalmnist3d_64.npz?download=1",
    ),
    ImageSet(
        name="pdgm",
        description="UCSF-PDGM: MRI of gliomas in axial slices; WHO grade 4 or 2, grouped by patient; "
        "pdgm:T1c names another sequence",
        license="CC BY 4.0",
        citation="Calabrese et al.: The UCSF preoperative diffuse glioma MRI dataset, Radiology: AI 4, 2022",
        bags=458,
        positives=403,
        instances=458 * 155,
        features="1x240x240",
        kind="volumes",
        url="https://doi.org/10.7937/tcia.bdgf-8v37",
        obtain="download it from The Cancer Imaging Archive and put its folders UCSF-PDGM-0004_nifti, ... and "
        "UCSF-PDGM-metadata_v2.csv into MIDAM_DATA/pdgm",
        places=("pdgm", "UCSF-PDGM-v3", "UCSF-PDGM"),
        part="FLAIR",
    ),
    ImageSet(
        name="oct",
        description="OCT of the retina in slices, as arrays of your own; the paper's set is private",
        license="private",
        citation="Zhu, Wang, Chen, Wu, Sonka, Yang: Provable multi-instance deep AUC maximization with stochastic "
        "pooling, ICML 2023",
        bags=2682,
        positives=747,
        instances=2682 * 31,
        features="1x256x256",
        kind="arrays",
        url=None,
        obtain="the paper's set is private; put your own into MIDAM_DATA/oct: volumes.npy [N, slices, rows, columns] "
        "and labels.npy [N] of 0 and 1, and, where you have them, groups.npy and splits.npy of names",
        places=("oct", "oct.npz"),
    ),
)


def listing_digest(bags: Bags) -> str:
    """SHA-256 of the names, labels, groups and file sizes of bags of one file each, whatever their order."""
    labels, groups, sources = bags.require_labels(), bags.groups, bags.sources
    lines = [
        f"{bags.ids[i]} {labels[i]} {'' if groups is None else groups[i]} "
        f"{0 if sources is None else Path(sources[i]).stat().st_size}"
        for i in range(len(bags))
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
