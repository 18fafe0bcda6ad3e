#!/bin/sh
# Use the built package as a stranger does: in an empty environment, in an empty folder. `make test-wheel` calls it.
#   wheel.sh BIN WHEEL      the environment's folder of programs, and the wheel that is installed there
set -eu
bin=$1 wheel=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$bin/python" -c 'import midam, pathlib; assert "site-packages" in midam.__file__, midam.__file__; assert (pathlib.Path(midam.__file__).parent / "py.typed").exists()'
"$bin/midam" --version
"$bin/midam" fit digits --epochs 3 --num-instances 4 --out run
"$bin/midam" predict run digits --out scores.csv
test "$(wc -l < scores.csv)" -eq 361
# The line that errors and pages name: pip adds an extra to the midam that is installed, and looks for it nowhere.
"$bin/python" -m pip install --quiet "midam[excel]" && "$bin/python" -c 'import openpyxl'
"$bin/python" - "$wheel" <<'PYTHON'
import email, re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
text = email.message_from_bytes(wheel.read(name)).get_payload()
links = re.findall(r"\]\(([^)\s]+)\)", text)
relative = [link for link in links if not link.startswith(("https://", "#"))]
assert links and not relative, relative
print(f"README of the wheel: {len(links)} links, 0 relative")
PYTHON
echo "the package works from an empty environment"
