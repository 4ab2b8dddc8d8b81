#!/bin/sh
# Find a Python from 3.11 on and let scripts/bootstrap.py set up everything else with it.
set -eu
cd "$(dirname "$0")/.."

fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

for python in ${PENSTOCK_PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 python; do
    if fits "$python"; then
        exec "$python" scripts/bootstrap.py "$@"
    fi
done
echo "Penstock needs Python 3.11 or newer, and none was found on the path: install it, for" \
    "example Debian's python3 and python3-venv." >&2
exit 1
