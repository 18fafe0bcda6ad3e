"""LibAUC for the benchmarks and the tests; its loader is in the package."""

from studies.peers import libauc_folder, load_libauc

__all__ = ["libauc_folder", "load_libauc"]
