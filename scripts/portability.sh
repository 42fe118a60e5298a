#!/usr/bin/env bash
# portability.sh: compiles every OpenCL program for GPUs that this machine does not have, with
# clang for AMD's and Intel's offline compiler for Intel's. It shows that the compilers accept the
# sources, not that they run right.
#
# The example emit_kernels writes the programs as the device layer would hand them to a driver.
#   NAME.cl, NAME.amd.cl, NAME.intel.cl   for all targets, for AMD's only, for Intel's only
#   NAME.nvidia.cl                        for none: NVIDIA has no offline compiler of OpenCL C
#   // options: -cl-std=CL2.0             as the first line: build options instead of CL1.2
# A target is skipped, visibly, where its compiler is missing or does not know it.
set -euo pipefail
cd "$(dirname "$0")/.."

amd=(gfx701 gfx90a gfx1030 gfx1100)
intel=(skl dg2) # Gen9 and Arc

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
            -mllvm -amdgpu-internalize-symbols $3 -c -o "$scratch/out.o" "$2" ;;
    *) ocloc compile -file "$2" -device "$1" -out_dir "$scratch/out" -options "$3" ;;
    esac
}

options() {
    local line
    read -r line <"$1" || true
    case $line in
    '// options: '*) echo "${line#// options: }" ;;
    *) echo -cl-std=CL1.2 ;;
    esac
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
cargo run --quiet --example emit_kernels -- "$scratch/cl"
programs=("$scratch"/cl/*.cl)
[ -e "${programs[0]}" ] || {
    echo "emit_kernels wrote no program" >&2
    exit 1
}

compilations=0 failures=0
for target in ${targets[@]+"${targets[@]}"}; do
    for program in "${programs[@]}"; do
        case $program:$target in
        *.amd.cl:gfx*) ;;
        *.amd.cl:* | *.intel.cl:gfx* | *.nvidia.cl:*) continue ;;
        esac
        compilations=$((compilations + 1))
        # Twice: clang 15, where there is no newer one, crashes now and then by itself, in a pass
        # for gfx1100; what it does not take, it refuses both times.
        if ! compile "$target" "$program" "$(options "$program")" >"$scratch/log" 2>&1 &&
            ! compile "$target" "$program" "$(options "$program")" >"$scratch/log" 2>&1; then
            failures=$((failures + 1))
            echo "FAILED ${program##*/} for $target"
            cat "$scratch/log"
        fi
    done
done

summary="${#programs[@]} programs x ${#targets[@]} targets, $compilations compilations"
skipped=$(wc -l <"$scratch/skipped")
reasons=$(paste -sd ';' "$scratch/skipped")
echo "portability: $summary, $failures failures, $skipped skipped${reasons:+ (${reasons//;/; })}"
[ "$failures" = 0 ]
