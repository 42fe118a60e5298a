#!/usr/bin/env bash
# rusticl.sh [--release] [gpu|cpu]: TPC-H's queries, the join tests and DataFusion's joins.slt on
# Mesa's rusticl over llvmpipe, as a GPU and as a CPU: a driver without 64-bit atomics and without
# sub-groups of its own choice, as Linux distributions ship it for GPUs of AMD, Intel, Apple and
# Qualcomm.
#
#   Debian 13 below target/ ◀─ mmdebstrap: mesa-opencl-icd, ocl-icd-libopencl1, pocl-opencl-icd
#     └─ chroot, with this folder, target/ and cargo's folder in it ─▶ runs what this machine built
#
# Mesa of older releases lacks rusticl's llvmpipe, so the root is Debian 13's, whatever runs
# outside. That is set up once. RUSTICL_RUNS=50 repeats TPC-H. HORTON_TEST_SMALL=1 tests join
# types and key types in small, as a GPU only. Exit status 77: it cannot be set up
# here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/root.sh

profile=()
[ "${1:-}" != --release ] || { profile=(--release) && shift; }
small=${HORTON_TEST_SMALL:+HORTON_TEST_SMALL=1}
types=("$@")
[ $# != 0 ] || types=(gpu)
[ $# != 0 ] || [ -n "$small" ] || types+=(cpu)
runs=${RUSTICL_RUNS:-1}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Another root where this script asks for other packages.
root=$target/rusticl-$(sha256sum scripts/rusticl.sh | cut -c1-8)
# The suite of DataFusion asks cargo where its files are.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
rustup_home=${RUSTUP_HOME:-$HOME/.rustup}

cannot() {
    echo "rusticl: not run: $1" >&2
    exit 77
}

# inside TYPE COMMAND...
inside() {
    in_root "$root" "$PWD $target $cargo_home $rustup_home" HOME="$HOME" \
        CARGO_HOME="$cargo_home" RUSTUP_HOME="$rustup_home" PATH="$cargo_home/bin:$PATH" \
        OCL_ICD_VENDORS=rusticl.icd RUSTICL_ENABLE=llvmpipe RUSTICL_DEVICE_TYPE="$1" \
        HORTON_CACHE_DIR=/var/cache/horton-join ${small:+"$small"} "${@:2}"
}

# built CARGO-ARGUMENTS...: builds test binaries and prints where they are.
built() {
    cargo test "${profile[@]}" --no-run "$@" 2>&1 | tee >(cat >&2) |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}

mkdir -p "$target"
[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
make_root "$root" trixie mesa-opencl-icd ocl-icd-libopencl1 pocl-opencl-icd ||
    cannot "no Debian 13 in $root"
inside gpu true || cannot "this system allows no mounts or no chroot"

cargo build "${profile[@]}" --examples
joins=$(built --test joins)
sqllogictest=$(built --package horton-sqllogictest)
examples=$target/debug/examples
[ ${#profile[@]} = 0 ] || examples=$target/release/examples

for type in "${types[@]}"; do
    echo "rusticl as $type:"
    inside "$type" "$examples/devices"
    for ((run = 1; run <= runs; run++)); do
        inside "$type" "$examples/tpch_join" --scale 0.02 --query all --check
    done
    # As a GPU every join builds Horton tables, as a CPU what suits: engines by name are tested on
    # PoCL.
    if [ -n "$small" ]; then
        inside "$type" "$joins" join::join_types join::key_types
    else
        inside "$type" "$joins" join:: --skip join::engines
    fi
    inside "$type" "$sqllogictest" joins.slt
done
