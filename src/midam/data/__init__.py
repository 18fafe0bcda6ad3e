"""Bags, where they come from, and how they are sampled."""

from typing import TYPE_CHECKING

from midam.lazy_imports import exports

if TYPE_CHECKING:
    from midam.data.bags import Bags as Bags
    from midam.data.batch import BagDataset as BagDataset
    from midam.data.batch import BalancedBags as BalancedBags
    from midam.data.batch import InstanceReader as InstanceReader
    from midam.data.batch import SampledBatch as SampledBatch
    from midam.data.batch import sampled_batches as sampled_batches
    from midam.data.column_codes import CovariateCoder as CovariateCoder
    from midam.data.covariates import Covariates as Covariates
    from midam.data.on_disk import Rows as Rows
    from midam.data.sampling import BagSampler as BagSampler
    from midam.data.sources import BagReader as BagReader
    from midam.data.sources import read_bags as read_bags
    from midam.data.sources.file_names import FileReader as FileReader
    from midam.data.sources.formats.open_file import OpenFile as OpenFile
    from midam.data.sources.request import ImageOptions as ImageOptions
    from midam.data.sources.request import Request as Request
    from midam.data.splits import split_bags as split_bags
    from midam.data.splits import stratified_folds as stratified_folds
    from midam.data.store import open_store as open_store
    from midam.data.store import verify_store as verify_store
    from midam.data.store import write_store as write_store
    from midam.data.target_labels import TargetLabels as TargetLabels

__all__, __getattr__, __dir__ = exports(__name__, modules="bags batch on_disk digits sampling sources splits store")
