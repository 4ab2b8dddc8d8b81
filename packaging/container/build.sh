#!/bin/sh
# Install a compiled Penstock into an environment of its own: build.sh SOURCE DESTINATION [EXTRAS]
#
# The versions are those of requirements/locked.txt. What compiles it stays outside.
set -eu
source=$1
destination=$2
extras=${3:+[$3]}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -e '/^ *--hash/d' -e 's/ *\\$//' "$source/requirements/locked.txt" >"$work/constraints.txt"
export PIP_CONSTRAINT="$work/constraints.txt" PIP_BUILD_CONSTRAINT="$work/constraints.txt"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# A copy, so that the source tree gets no compiled files.
mkdir "$work/source" "$work/wheels"
(cd "$source" && tar -cf - pyproject.toml setup.py README.md LICENSE src) | tar -xf - -C "$work/source"
PENSTOCK_COMPILE=1 python3 -m pip wheel --quiet --no-deps --wheel-dir "$work/wheels" "$work/source"

python3 -m venv "$destination"
set -- "$work"/wheels/penstock-*.whl
"$destination/bin/python" -m pip install --quiet "$1$extras"
"$destination/bin/python" -m compileall -q "$destination"
"$destination/bin/penstock" --version
