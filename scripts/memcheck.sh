#!/usr/bin/env bash
# memcheck.sh [TEST FILTER]...: runs tests of unsafe code under valgrind, on PoCL. These are the
# loader's tests, and those that take the device layer through all its paths: mapping, staging,
# transfers, pooled blocks, dropping midway. Fails on any invalid access, use of undefined memory or
# failing test.
#
# Valgrind and not AddressSanitizer: that one would have every dependency built again, and does not
# see what the driver and its just-in-time compiled kernels do to our buffers.
#
# Everything runs twice: as it is, which fills the caches of compiled kernels; then under valgrind,
# where compiling one program would take a quarter of an hour. About five minutes in all on two idle
# cores.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/ensure-tools.sh valgrind
[ $# -gt 0 ] || set -- a_kernel_or_argument memory_returns an_empty_probe table::sizes_around \
    a_panicking_job a_stream_dropped_midway a_fault_in_a_chunk

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export POCL_CACHE_DIR=$scratch/pocl HORTON_CACHE_DIR=$scratch/horton HORTON_TEST_SMALL=1
# Compiled for the processor that valgrind shows, which has no wider vectors: caches of its own.
if grep -q avx2 /proc/cpuinfo; then
    export POCL_KERNELLIB_NAME=avx2
fi
if [ -e /etc/OpenCL/vendors/pocl.icd ]; then
    export OCL_ICD_VENDORS=pocl.icd
fi
mkdir -p "$POCL_CACHE_DIR"

# The tests of a crate's targets, as cargo names their programs.
programs() {
    cargo test --no-run "$@" 2>&1 | tee >(cat >&2) | sed -n 's/.*Executable.*(\(.*\))$/\1/p'
}
mapfile -t ours < <(programs -p horton-tables -p horton-join --test tables --test joins --test processes)
mapfile -t loader < <(programs --package horton-opencl-loader --test loader)

status=0
memcheck() {
    valgrind --quiet --error-exitcode=9 --num-callers=24 --suppressions=scripts/valgrind.supp \
        --gen-suppressions=no --trace-children=yes --child-silent-after-fork=yes \
        "$@" --test-threads=1 || status=$?
}
memcheck "${loader[0]}"
for program in "${ours[@]}"; do
    "$program" "$@" --test-threads=1 || status=$?
    memcheck "$program" "$@"
done
[ "$status" = 0 ] && echo "memcheck: clean" || echo "memcheck: failed"
exit "$status"
