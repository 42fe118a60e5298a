#!/usr/bin/env bash
# oclgrind.sh [CARGO TEST ARGUMENTS]: runs device tests on oclgrind; by default those of the tables,
# at small sizes. oclgrind executes kernels one instruction at a time, and reports data races,
# accesses out of bounds and divergent barriers. Fails if a test fails or oclgrind says anything:
# its findings change neither a kernel's results nor an exit status.
#
# HORTON_TEST_SMALL=1 takes one or two tests of each kind of table: three minutes in the place of
# twenty. Every tuning of the lookups and the rest of the suite over all tables take half an hour
# more:
#
#   oclgrind.sh -p horton-tables --test tables -- --test-threads=1 table_ops::
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# = 0 ] && [ -n "${HORTON_TEST_SMALL:-}" ]; then
    exec scripts/oclgrind.sh -p horton-tables --test tables -- --test-threads=1 table::device_built \
        table::every_body table::host_built multimap::hot_keys_are_grouped multimap::repeating_keys \
        wide::codes_of_one_word wide::rows_need_not dynamic::suite::concurrent_histories \
        dynamic::slab::batches dynamic::linear:: batches_go_in_and_out
fi
if [ $# = 0 ]; then
    scripts/oclgrind.sh -p horton-tables --test tables -- --test-threads=1 --skip table_ops:: --skip device::
    exec scripts/oclgrind.sh -p horton-tables --test tables -- --test-threads=1 batches_go_in_and_out a_full_table_rejects_a_batch
fi
scripts/ensure-tools.sh oclgrind

# Loaded as the OpenCL library itself, so that no other platform is there to be picked.
HORTON_OPENCL_LIBRARY=$(dirname "$(dirname "$(command -v oclgrind)")")/lib/oclgrind/liboclgrind-rt.so
export HORTON_OPENCL_LIBRARY
cargo run --quiet --package horton-opencl-loader --example platforms | grep '^Oclgrind: 1 device'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Every OpenCL context opens the log again and thereby empties a file, but not a pipe. Descriptor 3
# keeps the pipe open from the first context to the last.
mkfifo "$scratch/pipe"
exec 3<>"$scratch/pipe"
tee "$scratch/log" <"$scratch/pipe" 3>&- &
status=0
OCLGRIND_DATA_RACES=1 OCLGRIND_LOG=$scratch/pipe HORTON_TEST_SMALL=1 \
    cargo test "$@" 3>&- || status=$?
exec 3>&-
wait

findings=$(grep -c '^[^[:space:]]' "$scratch/log" || true)
echo "oclgrind: $findings findings"
[ "$status" = 0 ] && [ ! -s "$scratch/log" ]
