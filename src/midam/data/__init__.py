"""Bags, where they come from, and how they are sampled."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.data.bags import Bags as Bags
    from midam.data.bags import both_classes as both_classes
    from midam.data.batch import BagDataset as BagDataset
    from midam.data.batch import BalancedBags as BalancedBags
    from midam.data.batch import InstanceReader as InstanceReader
    from midam.data.batch import SampledBatch as SampledBatch
    from midam.data.batch import WholeBatch as WholeBatch
    from midam.data.batch import sampled_batches as sampled_batches
    from midam.data.batch import whole_batches as whole_batches
    from midam.data.column_codes import CovariateCoder as CovariateCoder
    from midam.data.covariates import Covariates as Covariates
    from midam.data.digests import bag_digests as bag_digests
    from midam.data.missing import fill_values as fill_values
    from midam.data.missing import impute as impute
    from midam.data.missing import missing_counts as missing_counts
    from midam.data.on_disk import RowFile as RowFile
    from midam.data.on_disk import Rows as Rows
    from midam.data.sampling import BagSampler as BagSampler
    from midam.data.sampling import EpochPlan as EpochPlan
    from midam.data.sampling import StrataSampler as StrataSampler
    from midam.data.sources import BagReader as BagReader
    from midam.data.sources import read_bags as read_bags
    from midam.data.sources.file_names import FileReader as FileReader
    from midam.data.sources.formats.open_file import OpenFile as OpenFile
    from midam.data.sources.inputs import read_npz as read_npz
    from midam.data.sources.inputs import write_npz as write_npz
    from midam.data.sources.request import ImageOptions as ImageOptions
    from midam.data.sources.request import Request as Request
    from midam.data.splits import check_disjoint as check_disjoint
    from midam.data.splits import split_bags as split_bags
    from midam.data.splits import stratified_folds as stratified_folds
    from midam.data.store import DamagedBag as DamagedBag
    from midam.data.store import is_store as is_store
    from midam.data.store import open_store as open_store
    from midam.data.store import verify_store as verify_store
    from midam.data.store import write_store as write_store
    from midam.data.target_labels import TargetLabels as TargetLabels

__all__, __getattr__, __dir__ = exports(__name__, modules="bags batch on_disk digits sampling sources splits store")
