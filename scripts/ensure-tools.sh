#!/usr/bin/env bash
# ensure-tools.sh oclgrind|clang|ocloc|valgrind|mmdebstrap: makes sure that a tool of the tests is
# there, installing it on Debian and Ubuntu. When that fails, the last line says why and the exit
# status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

tool=${1:?which tool?}
case $tool in
oclgrind | valgrind | mmdebstrap) package=$tool ;;
clang)
    # Distributions name it by its version; PoCL depends on one. Clang 15 crashes in one of ten
    # compilations for gfx1100 (heap corruption in a pass), 19 in none of forty.
    compgen -c clang- | grep -qxE 'clang-(1[6-9]|[2-9][0-9])' && exit 0
    package='clang-19|clang'
    ;;
# Newer releases have Intel's offline compiler in a package of its own, others in the driver's.
ocloc) package='intel-ocloc|intel-opencl-icd' ;;
*)
    echo "ensure-tools.sh does not know $tool" >&2
    exit 1
    ;;
esac

is_there() { command -v "$tool" >/dev/null || compgen -c "$tool-" | grep -qxE "$tool-[0-9]+"; }

[ "$tool" != clang ] && is_there && exit 0
if ! command -v apt-get >/dev/null; then
    echo "$tool is not installed, and this system has no apt-get to install it" >&2
    exit 1
fi
if ! apt_install "$package" >&2 || ! is_there; then
    echo "$tool is not installed, and the package $package did not bring it" >&2
    exit 1
fi
