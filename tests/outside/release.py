"""Whether wheel and sdist can be released: versions agree, and both work from nothing. `make release-check` calls it.

python -m tests.outside.release DIST [--all]

Each Python of 3.11 to 3.13 that is found here gets an empty environment for the wheel, the first one another for the
sdist; one that is not found is named, and with --all an error.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from midam._version import __version__

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")


def main(dist: Path, *, every: bool) -> int:
    """Check, and return the exit code."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    faults = _versions(wheel, sdist)
    found = {version: _interpreter(version) for version in PYTHONS}
    tried = 0
    for version, python in found.items():
        if python is None:
            print(f"{version}: no such Python here, not tried")
            faults += [f"no Python {version}"] if every else []
            continue
        for package in [wheel, sdist] if not tried else [wheel]:
            works = _works(python, package, wheel)
            faults += [] if works else [f"{package.name} on Python {version}"]
            print(f"{version}: {package.name} {'works' if works else 'DOES NOT WORK'}", flush=True)
        tried += 1
    print("\n".join(f"fault: {fault}" for fault in faults) or f"midam {__version__} can be released")
    return bool(faults)


def _versions(wheel: Path, sdist: Path) -> list[str]:
    """What does not say the version that the code has."""
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    heads = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    faults = [f"{file.name} is not of version {__version__}" for file in (wheel, sdist) if __version__ not in file.name]
    if cited is None or cited[1] != __version__:
        faults.append(f"CITATION.cff is not of version {__version__}")
    if heads[:1] not in (["Unreleased"], [__version__]):
        faults.append("CHANGELOG.md begins with another version")
    return faults


def _interpreter(version: str) -> str | None:
    command = [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _works(python: str, package: Path, wheel: Path) -> bool:
    torch = next(line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith("torch=="))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bin"
        pip = [place / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        pip += ["-c", ROOT / "constraints.txt"]
        commands: list[list[str | Path]] = [
            [python, "-m", "venv", folder],
            [*pip, torch],
            [*pip, package],
            ["sh", ROOT / "tests/outside/wheel.sh", place, wheel.resolve()],
        ]
        return all(subprocess.run(command, check=False).returncode == 0 for command in commands)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), every="--all" in sys.argv))
