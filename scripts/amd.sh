#!/usr/bin/env bash
# amd.sh [WORDS...]: the self-test, tables and joins as AMD machine code, on a GPU that is emulated.
# amd.sh simulate SEED SEEDS SECONDS: joins on it while calls and commands fail, for so many seeds
# from the first one on, within about so many seconds.
#
#   tests ─▶ the loader ─▶ libhorton_driver.so (tests/driver) ─▶ clang-19 ─▶ code for the chip
#                                        └─ waves, barriers, atomics, instruction by instruction
#
# Each of WORDS is what HORTON_DRIVER says in one round (tests/driver/src/lib.rs): the chip, whose
# driver it passes for, and a seed by which waves take turns and commands are late. Without
# arguments: all chips. HORTON_TEST_SMALL=1 takes one with waves of 64 and one with waves of 32, and
# fewer tests. Exit status 77: the compilers cannot be installed here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

rounds=("$@")
if [ $# = 0 ] && [ -n "${HORTON_TEST_SMALL:-}" ]; then
    rounds=('gfx90a mixed seed=1' 'gfx1100 rusticl mixed seed=2')
elif [ $# = 0 ]; then
    for chip in gfx90a gfx942 gfx1100; do
        rounds+=("$chip" "$chip mixed seed=1" "$chip rusticl mixed seed=2")
    done
fi

cannot() {
    echo "amd.sh: not run: $1" >&2
    exit 77
}

has_tools() {
    local tool
    for tool in clang-19 lld-19 llvm-objdump-19; do command -v $tool >/dev/null || return 1; done
    [ -e /usr/lib/clc/amdgcn--amdhsa.bc ]
}
has_tools || apt_install clang-19 lld-19 llvm-19 libclc-19 opencl-c-headers >&2 || true
has_tools || cannot "clang-19, lld-19, llvm-19 and libclc-19 are not installed"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cache=$target/amd
mkdir -p "$cache"
export HORTON_OPENCL_LIBRARY=$target/debug/libhorton_driver.so HORTON_CACHE_DIR=$scratch

cargo build --package horton-driver
cargo build --example devices
# built CARGO-ARGUMENTS...: builds test binaries and prints where they are.
built() {
    cargo test --no-run "$@" 2>&1 | tee >(cat >&2) | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}

# simulate SEED SEEDS SECONDS
simulate() {
    HORTON_DRIVER="gfx90a seed=$1 cache=$cache" HORTON_TEST_SEED=$1 HORTON_TEST_SEEDS=$2 \
        HORTON_TEST_SECONDS=$3 "$processes" --exact --nocapture \
        faults::simulated::joins_survive_whatever_a_driver_does | tee "$scratch/simulated"
    grep -q '^simulated: Totals' "$scratch/simulated"
}
# tests BINARY NAMES...: runs tests, of which there must be some of each name.
tests() {
    local name
    for name in "${@:2}"; do
        "$1" --list "$name" | grep ': test$' >/dev/null || {
            echo "amd.sh: $1 has no test $name" >&2
            return 1
        }
    done
    "$1" --test-threads=2 "${@:2}"
}
processes=$(built --test processes)
if [ "${1:-}" = simulate ]; then
    simulate "$2" "$3" "$4"
    exit
fi

joins=$(built --test joins)
tables=$(built --package horton-tables --test tables)
# Tables of joins; tables that need 64-bit atomics, which rusticl has not; joins.
of_tables=(table::device_built table::host_built multimap::)
with_atomics=(wide:: dynamic::suite::concurrent_histories dynamic::slab::batches dynamic::linear::
    batches_go_in_and_out)
of_joins=(join::join_types join::key_types join::spill)
seconds=600
if [ -n "${HORTON_TEST_SMALL:-}" ]; then
    of_tables=(table::device_built multimap::repeating_keys)
    with_atomics=(wide::codes_of_one_word dynamic::slab::batches batches_go_in_and_out)
    of_joins=(join::join_types::every_join_type_runs join::key_types::several)
    seconds=60
fi
export HORTON_TEST_SMALL=1

for round in "${rounds[@]}"; do
    log=$scratch/launches
    : >"$log"
    export HORTON_DRIVER="$round log=$log cache=$cache"
    began=$SECONDS
    echo "AMD: $round"
    "$target/debug/examples/devices"
    these=("${of_tables[@]}")
    [[ $round == *rusticl* ]] || these+=("${with_atomics[@]}")
    tests "$tables" "${these[@]}"
    tests "$joins" "${of_joins[@]}"
    awk -v round="$round" -v seconds=$((SECONDS - began)) '
        { ++launches; kernels[$1]; instructions += $5; wrong += NF > 8 }
        END {
            for (k in kernels) ++n
            printf "AMD: %s: %d launches of %d kernels, %.1f million instructions of waves, %d wrong, %d s\n",
                round, launches, n, instructions / 1e6, wrong, seconds
            exit !launches || wrong
        }' "$log"
done
simulate 1 10000 $seconds
