"""Bags in a folder that opens at once, whatever its size: write, open, verify."""

from midam.data.store.format import is_store, open_store, verify_store
from midam.data.store.write import require_free, write_store

__all__ = ["is_store", "open_store", "require_free", "verify_store", "write_store"]
