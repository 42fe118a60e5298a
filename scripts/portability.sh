#!/usr/bin/env bash
# portability.sh: compiles every OpenCL program for GPUs that this machine does not have, with
# clang for AMD's and Intel's offline compiler for Intel's. It shows that the compilers accept the
# sources, not that they run right.
#
# The example emit_kernels writes the programs as the device layer would hand them to a driver.
#   NAME.cl, NAME.amd.cl, NAME.intel.cl   for all targets, for AMD's only, for Intel's only
#   NAME.nvidia.cl                        for none: NVIDIA has no offline compiler of OpenCL C
#   // options: -cl-std=CL2.0             as the first line: build options instead of CL1.2
# Programs that do not enable the extension with 64-bit atomics are compiled for AMD's GPUs without
# it, as on devices that lack it. All programs that joins need are such. A target is skipped,
# visibly, where its compiler is missing or does not know it. HORTON_TEST_SMALL=1 takes the oldest
# and the newest target of AMD and the newest of Intel.
set -euo pipefail
cd "$(dirname "$0")/.."

amd=(gfx701 gfx90a gfx1030 gfx1100)
intel=(skl dg2) # Gen9 and Arc
[ -z "${HORTON_TEST_SMALL:-}" ] || amd=(gfx701 gfx1100) intel=(dg2)
without_atomics='-Xclang -cl-ext=-cl_khr_int64_base_atomics,-cl_khr_int64_extended_atomics'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

clang=$(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -V | tail -n 1 || true)
clang=${clang:-clang}

# compile TARGET FILE OPTIONS
compile() {
    case $1 in
    # As a driver does: only kernels can be called from outside, so the other functions are inlined.
    # Otherwise gfx701 runs out of scalar registers at the calls of built-in functions.
    gfx*) # shellcheck disable=SC2086 # OPTIONS are words
        "$clang" -x cl -target amdgcn-amd-amdhsa -mcpu="$1" -nogpulib -Xclang -finclude-default-header \
            -mllvm -amdgpu-internalize-symbols $3 -c -o "$scratch/$1.o" "$2" ;;
    *) ocloc compile -file "$2" -device "$1" -out_dir "$scratch/$1.out" -options "$3" ;;
    esac
}

# needs_atomics FILE: whether it enables 64-bit atomics.
needs_atomics() { grep -q '^#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable' "$1"; }

# options FILE TARGET
options() {
    local line
    read -r line <"$1" || true
    case $line in
    '// options: '*) line=${line#// options: } ;;
    *) line=-cl-std=CL1.2 ;;
    esac
    case $2 in
    gfx*) needs_atomics "$1" || line+=" $without_atomics" ;;
    esac
    echo "$line"
}

# accepts TARGET FILE: whether it compiles in one of five tries. clang 15, where there is no newer
# one, corrupts its memory now and then for gfx1100 (one time of eight with cuckoo_first_fit_4_256);
# what it does not take, it refuses each time.
accepts() {
    local try
    for try in 1 2 3 4 5; do
        if compile "$1" "$2" "$(options "$2" "$1")" >"$scratch/$1.log" 2>&1; then
            return
        fi
        [ "$try" = 5 ] || echo "again: ${2##*/} for $1"
    done
    return 1
}

# usable VENDOR TOOL TARGET...: prints the targets whose compiler accepts a one-line kernel, and
# reports the others in $scratch/skipped.
usable() {
    local vendor=$1 tool=$2 target reason
    shift 2
    if ! reason=$(scripts/ensure-tools.sh "$tool" 2>&1); then
        echo "$vendor: ${reason##*$'\n'}" >>"$scratch/skipped"
        return
    fi
    for target in "$@"; do
        if compile "$target" "$scratch/probe.cl" -cl-std=CL1.2 >/dev/null 2>&1; then
            echo "$target"
        else
            echo "$target: this $tool does not know it" >>"$scratch/skipped"
        fi
    done
}

echo 'kernel void probe(global uint *a) { a[0] = 1; }' >"$scratch/probe.cl"
: >"$scratch/skipped"
mapfile -t targets < <(
    usable AMD clang "${amd[@]}"
    usable Intel ocloc "${intel[@]}"
)

mkdir "$scratch/cl"
cargo build --quiet -p horton-tables --example emit_kernels
"${CARGO_TARGET_DIR:-target}/debug/examples/emit_kernels" "$scratch/cl"
programs=("$scratch"/cl/*.cl)
[ -e "${programs[0]}" ] || {
    echo "emit_kernels wrote no program" >&2
    exit 1
}

# What takes the extension away must do so: a program that needs it no longer compiles.
probe=$(grep -lE '^#pragma OPENCL EXTENSION cl_khr_int64_base_atomics' "${programs[@]}" | head -n 1)
for target in ${targets[@]+"${targets[@]}"}; do
    case $target in
    gfx*)
        if compile "$target" "$probe" "-cl-std=CL1.2 $without_atomics" >/dev/null 2>&1; then
            echo "${probe##*/} compiles for $target without the 64-bit atomics that it needs" >&2
            exit 1
        fi
        ;;
    esac
done

# compile_all TARGET: compiles every program for it. Prints failures, and as the last line how many
# compilations there were, how many without 64-bit atomics, and how many failed.
compile_all() {
    local target=$1 program compilations=0 without=0 failures=0
    for program in "${programs[@]}"; do
        case $program:$target in
        *.amd.cl:gfx*) ;;
        *.amd.cl:* | *.intel.cl:gfx* | *.nvidia.cl:*) continue ;;
        esac
        compilations=$((compilations + 1))
        case $(options "$program" "$target") in
        *"$without_atomics") without=$((without + 1)) ;;
        esac
        if ! accepts "$target" "$program"; then
            failures=$((failures + 1))
            echo "FAILED ${program##*/} for $target"
            cat "$scratch/$target.log"
        fi
    done
    echo "$compilations $without $failures"
}

# A compiler uses one core, so the targets run side by side.
for target in ${targets[@]+"${targets[@]}"}; do
    compile_all "$target" >"$scratch/$target.report" &
done
wait

compilations=0 failures=0 without=0
for target in ${targets[@]+"${targets[@]}"}; do
    head -n -1 "$scratch/$target.report"
    # A report without its last line ends the script: not every program was compiled.
    read -r some lacking failed < <(tail -n 1 "$scratch/$target.report")
    compilations=$((compilations + some)) without=$((without + lacking)) failures=$((failures + failed))
done

summary="${#programs[@]} programs x ${#targets[@]} targets, $compilations compilations, $without without 64-bit atomics"
skipped=$(wc -l <"$scratch/skipped")
reasons=$(paste -sd ';' "$scratch/skipped")
echo "portability: $summary, $failures failures, $skipped skipped${reasons:+ (${reasons//;/; })}"
[ "$failures" = 0 ]
