"""Methods of other libraries that the studies of tabular bags run too, if they are installed."""

from midam.errors import ConfigError
from midam.registry import BASELINES

PEERS = ("libauc-midam-att", "libauc-midam-smx", "torchmil-abmil")


def installed_peers(names: tuple[str, ...] = PEERS) -> tuple[str, ...]:
    """Return the methods whose library is installed."""
    return tuple(name for name in names if _installed(name))


def _installed(peer: str) -> bool:
    try:
        BASELINES.find(peer)()
    except ConfigError:
        return False
    return True
