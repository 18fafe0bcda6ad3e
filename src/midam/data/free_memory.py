"""Free memory, and errors and warnings about data that does not fit into it."""

import re
import warnings
from contextlib import suppress
from pathlib import Path

from midam.data.on_disk import physical_memory
from midam.errors import BagDataError, ConfigError
from midam.files import size_text
from midam.lazy_imports import torch

ON_DISK = "write a file for each bag, such as .npy, and let `midam data import` make a store that stays on the disk"


def free_memory(device: "torch.device | None" = None) -> int:
    """Return the free bytes of a device; on the CPU (default), those that the system, container or job leaves."""
    if device is not None and device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    granted = [left for left in (_available(), _granted()) if left is not None]
    return min(granted, default=physical_memory())


def require_memory(needed: int, *, device: "torch.device", source: str) -> None:
    """Refuse to keep all instances on a device, as the setting `resident` asks, where they do not fit."""
    free = free_memory(device)
    if needed > free:
        raise ConfigError(
            f"Expected {size_text(needed)} of free memory on the device {device}, where `resident=True` keeps all "
            f"instances, got {size_text(free)} (in {source}); leave out `resident` to read instances as they are drawn."
        )


def fits(needed: int) -> bool:
    """Return whether this number of bytes of memory is free."""
    return needed <= free_memory()


def require_free(needed: int, content: str, *, source: str) -> None:
    """Refuse to read data that does not fit into memory."""
    free = free_memory()
    if needed > free:
        raise BagDataError(
            f"Expected data that fits into the {size_text(free)} of free memory, got {content} that takes about "
            f"{size_text(needed)} (in {source}); use a machine with more memory, or {ON_DISK}."
        )


def warn_of_memory(needed: int, content: str, *, source: str) -> None:
    """Warn about data that is about to be held in memory and does not fit."""
    free = free_memory()
    if needed > free:
        warnings.warn(
            f"{content} takes {size_text(needed)} of memory, of which {size_text(free)} are free (in {source}): the "
            f"system may end this process; {ON_DISK}",
            stacklevel=3,
        )


def _available(path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that Linux reports as available."""
    with suppress(OSError):
        match = re.search(r"^MemAvailable: *(\d+) kB", path.read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match else None
    return None


def _granted(process: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that the container or the job of this process leaves to it; None without a limit."""
    left: list[int] = []
    lines = process.read_text().splitlines() if process.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, limit, used = (mount, "memory.max", "anon")
        if controllers:
            root, limit, used = (mount / "memory", "memory.limit_in_bytes", "total_rss")
        folder = root / path.lstrip("/")
        # The limit of a group applies to the groups inside it.
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            with suppress(OSError, ValueError):
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                left.append(int((group / limit).read_text()) - int(stat.get(used, 0)))
    return max(0, min(left)) if left else None
