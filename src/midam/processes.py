"""The processes that train one model: their number, the rank of this process, and the start and end of the others.

Any helper process can end with the process that started it (`end_with`).
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from midam.errors import ConfigError, require_counts

LOCAL, LEADER = "LOCAL_RANK", "MIDAM_LEADER"
_HERE = "127.0.0.1"
_EVERY_S = 0.5
_SYNCHRONIZE, _FOREVER = 0x00100000, 0xFFFFFFFF  # constants of the Windows API


@dataclass(frozen=True)
class Processes:
    """The number of processes that train one model.

    Attributes
    ----------
    devices : int >= 1
        Processes on each machine: GPUs, or processes on the CPU.
    num_nodes : int >= 1
        Number of machines.
    timeout : float > 0
        Minutes after which a process without an answer counts as lost.
    """

    devices: int = 1
    num_nodes: int = 1
    timeout: float = 30.0

    def __post_init__(self) -> None:
        require_counts(devices=self.devices, num_nodes=self.num_nodes)
        if not self.timeout > 0:
            raise ConfigError(f"Expected `timeout` above 0 minutes, got {self.timeout:g}; set a larger one.")

    @classmethod
    def launched(cls, devices: int | None = None, timeout: float = 30.0) -> "Processes":
        """Return the requested processes of each machine; by default as many as torchrun has started."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        nodes = int(os.environ.get("WORLD_SIZE", "1")) // here if "LOCAL_WORLD_SIZE" in os.environ else 1
        return cls(here if devices is None else devices, nodes, timeout)

    @property
    def count(self) -> int:
        """Number of all processes."""
        return self.devices * self.num_nodes

    @property
    def rank(self) -> int:
        """Number of this process, from 0; process 0 leads."""
        if self.count == 1:
            return 0
        return int(os.environ.get("GROUP_RANK", "0")) * self.devices + int(os.environ.get(LOCAL, "0"))

    @property
    def started_by_others(self) -> bool:
        """Whether torchrun or a process of midam has started this process with the others."""
        return LOCAL in os.environ

    def strategy(self) -> Any:
        """Return the strategy of a `lightning_fabric.Fabric` for these processes."""
        if self.count == 1:
            return "auto"
        from lightning_fabric.strategies.ddp import DDPStrategy  # only for several processes

        return DDPStrategy(timeout=timedelta(minutes=self.timeout))


def start_others(devices: int) -> list[subprocess.Popen[bytes]]:
    """Start the further processes of this machine, which run this program, as lightning_fabric starts them.

    Its launcher is not used, because it kills all processes without a message when one has died.
    """
    from lightning_fabric.plugins.environments.lightning import find_free_network_port

    import __main__  # the running program

    spec = getattr(__main__, "__spec__", None)
    script = [os.path.abspath(sys.argv[0])] if spec is None else ["-m", spec.name.removesuffix(".__main__")]
    os.environ.setdefault("MASTER_ADDR", _HERE)
    os.environ.setdefault("MASTER_PORT", str(find_free_network_port()))
    os.environ.update({LOCAL: "0", "WORLD_SIZE": str(devices)})
    known, command = {**os.environ, LEADER: str(os.getpid())}, [sys.executable, *script, *sys.argv[1:]]
    return [subprocess.Popen(command, env={**known, LOCAL: str(n)}) for n in range(1, devices)]


def end_others(others: Iterable[subprocess.Popen[bytes]], *, wait_s: float = 0.0) -> None:
    """End the processes that have not ended by themselves after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    for child in others:
        try:
            child.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def restarted() -> bool:
    """Return whether torchrun has restarted the processes after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def end_with(parent: int) -> None:
    """End this process soon after the process `parent`, even in the middle of a task."""
    threading.Thread(target=_watch, args=(parent,), name="midam-parent", daemon=True).start()


def _watch(parent: int) -> None:
    if sys.platform == "win32":
        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(_SYNCHRONIZE, False, parent)
        if handle:
            kernel.WaitForSingleObject(handle, _FOREVER)
    else:
        # An orphan gets another parent.
        while os.getppid() == parent:
            time.sleep(_EVERY_S)
    os._exit(1)
