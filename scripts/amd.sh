#!/usr/bin/env bash
# amd.sh [WORDS...]: the self-test, tables and joins as AMD machine code, on a GPU that is emulated.
# amd.sh simulate SEED SEEDS SECONDS [WORDS]: joins on it while calls and commands fail, for so many
# seeds from the first one on, within about so many seconds. PoCL runs the kernels, unless WORDS
# name a chip alone. TIMES=20 repeats each seed, as threads take turns in another way each time.
# PROFILE=--release takes a fifth of the time per seed, and more to build.
#
#   tests ─▶ the loader ─▶ libhorton_driver.so (tests/driver) ─┬▶ clang-19 ─▶ code for the chip
#                                                              │     waves, barriers, atomics,
#                                                              │     instruction by instruction
#                                                              └▶ PoCL, for many seeds
#
# Each of WORDS is what HORTON_DRIVER says in one round (tests/driver/src/lib.rs): the chip, whose
# driver it passes for, a seed by which waves take turns and commands are late, and whether races
# are looked for. Without arguments: all chips. HORTON_TEST_SMALL=1 takes one with waves of 64 and
# one with waves of 32, and fewer tests. Seeds are simulated in either case. Exit status 77: the
# compilers cannot be installed here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

rounds=("$@")
if [ $# = 0 ] && [ -n "${HORTON_TEST_SMALL:-}" ]; then
    # Shuffles are rusticl's, and rusticl lacks 64-bit atomics: each width has one of them.
    rounds=('gfx1100 mixed seed=1 races' 'gfx90a rusticl mixed seed=2')
elif [ $# = 0 ]; then
    for chip in gfx90a gfx942 gfx1100; do
        rounds+=("$chip" "$chip mixed seed=1 races" "$chip rusticl mixed seed=2")
    done
fi

has_tools() {
    local tool
    for tool in clang-19 lld-19 llvm-objdump-19 llvm-readelf-19; do
        command -v $tool >/dev/null || return 1
    done
    [ -e /usr/lib/clc/amdgcn--amdhsa.bc ]
}
# Ends the script if there is no compiler for AMD's chips, and none can be installed.
need_tools() {
    has_tools || apt_install clang-19 lld-19 llvm-19 libclc-19 opencl-c-headers >&2 || true
    has_tools && return
    echo "amd.sh: not run: clang-19, lld-19, llvm-19 and libclc-19 are not installed" >&2
    exit 77
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Calls fail on demand in builds with debug assertions only.
profile=() built=debug
if [ "${PROFILE:-}" = --release ]; then
    profile=(--release) built=release
    for name in join tables test-support tables-test-support driver; do
        profile+=(--config "profile.release.package.horton-$name.debug-assertions=true")
    done
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cache=$target/amd
mkdir -p "$cache"
export HORTON_OPENCL_LIBRARY=$target/$built/libhorton_driver.so HORTON_CACHE_DIR=$scratch

cargo build "${profile[@]}" --package horton-driver
# built CARGO-ARGUMENTS...: builds test binaries and prints where they are.
built() {
    cargo test "${profile[@]}" --no-run "$@" 2>&1 | tee >(cat >&2) | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}
processes=$(built --test processes)

# Seeds of a process at most: memory of a driver that hung stays for good.
range_max=500
# range SEED SEEDS UNTIL WORDS: one process. A mistake prints its end, and the seed that it was at.
range() {
    local left=$(($3 - SECONDS)) log=$scratch/simulated.$1
    [ "$left" -gt 0 ] || return 0
    HORTON_DRIVER="$4 seed=$1 cache=$cache" HORTON_TEST_SEED=$1 HORTON_TEST_SEEDS=$2 \
        HORTON_TEST_SECONDS=$left HORTON_TEST_TIMES=${TIMES:-1} "$processes" --exact --nocapture \
        faults::simulated::joins_survive_whatever_a_driver_does >"$log" 2>&1 &&
        # On PoCL no kernel runs on what another has left unfinished.
        { [[ $4 != *pocl* ]] || ! grep ' BEHIND ' "$log" >&2; } && return
    touch "$scratch/failed"
    tail -n 60 "$log" >&2
    sed -n "s/^simulated: make/amd.sh: TIMES=20 WORDS='$4' make/p" "$log" | tail -n 1 >&2
}
# Processes for each core. Most of them wait for a driver that hangs, and in release nearly all.
per_core=3
[ $built = debug ] || per_core=12
# simulate SEED SEEDS SECONDS WORDS: processes side by side.
simulate() {
    local until=$((SECONDS + $3)) end=$(($1 + $2)) seed most=$(($(nproc) * per_core))
    local range=$(($2 / most + 1))
    range=$((range > range_max ? range_max : range))
    # One thread runs kernels, which are small: other processes have the cores.
    export POCL_DEVICES=basic POCL_CACHE_DIR=$cache/pocl
    [ ! -e /etc/OpenCL/vendors/pocl.icd ] || export OCL_ICD_VENDORS=pocl.icd
    mkdir -p "$POCL_CACHE_DIR"
    rm -f "$scratch"/simulated.*
    for ((seed = $1; seed < end; seed += range)); do
        while [ "$(jobs -r | wc -l)" -ge $most ]; do wait -n; done
        [ ! -e "$scratch/failed" ] && [ $SECONDS -lt $until ] || break
        range $seed $((end - seed < range ? end - seed : range)) $until "$4" &
    done
    wait
    [ ! -e "$scratch/failed" ] || return 1
    sed -n 's/^simulated: Totals { \(.*\) }$/\1/p' "$scratch"/simulated.* | awk -F', ' -v words="$4" \
        -v seconds=$((SECONDS - until + $3)) '
        { for (i = 1; i <= NF; ++i) { split($i, of, ": "); sum[of[1]] += of[2]; name[i] = of[1] } }
        END {
            printf "simulated, %s:", words
            for (i = 1; i in name; ++i) printf " %d %s,", sum[name[i]], name[i]
            printf " %d s\n", seconds
            exit !sum["seeds"]
        }'
}
if [ "${1:-}" = simulate ]; then
    words=${5:-gfx90a pocl}
    [[ $words == *pocl* ]] || need_tools
    simulate "$2" "$3" "$4" "$words"
    exit
fi
if [ -n "${HORTON_TEST_SMALL:-}" ]; then seconds=(120 20); else seconds=(600 600); fi
simulate 1 10000 "${seconds[0]}" 'gfx90a pocl'

need_tools
cargo build "${profile[@]}" --example devices
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
cargo test --package horton-driver --test races
joins=$(built --test joins)
tables=$(built --package horton-tables --test tables)
# Tables of joins; tables that need 64-bit atomics, which rusticl has not; joins.
of_tables=(table::device_built table::host_built multimap::)
with_atomics=(wide:: dynamic::suite::concurrent_histories dynamic::slab::batches dynamic::linear::
    batches_go_in_and_out)
of_joins=(join::join_types join::key_types join::spill)
if [ -n "${HORTON_TEST_SMALL:-}" ]; then
    of_tables=(table::device_built multimap::repeating_keys)
    with_atomics=(wide::codes_of_one_word dynamic::slab::batches batches_go_in_and_out)
    of_joins=(join::join_types::every_join_type_runs join::key_types::several)
fi
export HORTON_TEST_SMALL=1

for round in "${rounds[@]}"; do
    log=$scratch/launches
    : >"$log"
    export HORTON_DRIVER="$round log=$log cache=$cache"
    began=$SECONDS
    echo "AMD: $round"
    "$target/$built/examples/devices"
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
simulate 1 10000 "${seconds[1]}" gfx90a
