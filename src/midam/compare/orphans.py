"""Processes that end with the one that started them, also where that is killed and can tell them nothing."""

import ctypes
import os
import sys
import threading
import time

_EVERY_SECONDS = 0.5
_SYNCHRONIZE, _FOREVER = 0x00100000, 0xFFFFFFFF  # of the Windows API


def end_with(parent: int) -> None:
    """Let this process end soon after its parent, the process `parent`, whatever it does then."""
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
            time.sleep(_EVERY_SECONDS)
    os._exit(1)
