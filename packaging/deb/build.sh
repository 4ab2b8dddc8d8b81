#!/bin/sh
# Make penstock_VERSION_ARCH.deb of a source tree, on Debian: build.sh [DESTINATION]
#
#   apt install gcc python3-dev python3-venv
#   sh packaging/deb/build.sh dist
#
# The broker, its client and its bridge, compiled, with tokens as passwords and metrics, in an
# environment below /usr/lib/penstock with the versions of requirements/locked.txt. docs/deploying.md
# says what the package does when it is installed, upgraded, removed and purged.
set -eu
here=$(dirname "$(realpath "$0")")
source=$(dirname "$(dirname "$here")")
destination=${1:-.}
PATH=/usr/sbin:/usr/bin:/sbin:/bin    # Debian's own Python, on which the package depends
export PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$source/packaging/container/build.sh" "$source" "$work/environment" jwt,admin
sh "$here/pack.sh" "$work/environment" "$destination"
