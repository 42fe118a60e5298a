#!/usr/bin/env bash
# bare.sh: runs the programs as on a machine without OpenCL and without root.
#
#   no vendor file, no apt-get, no sudo ─▶ joins run on the host, with their rows
#                                       ─▶ everything else names the packages, and installs nothing
#
# Needs the debug programs: cargo build --workspace --bins --examples.
set -euo pipefail
cd "$(dirname "$0")/.."
debug=${CARGO_TARGET_DIR:-target}/debug
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Whoever calls one of these has tried to install something.
mkdir "$scratch/bin"
for tool in apt-get apt sudo pip pip3; do
    printf '#!/bin/sh\necho "%s was called" >> "%s/installs"\nexit 1\n' "$tool" "$scratch" \
        >"$scratch/bin/$tool"
    chmod +x "$scratch/bin/$tool"
done
export PATH=$scratch/bin:$PATH INSTALL=0 HORTON_CACHE_DIR=$scratch/cache
export OCL_ICD_VENDORS=$scratch/none
unset OPENCL_VENDOR_PATH POCL_DEVICES || true

failed=0
# expect STATUS TEXT COMMAND...: runs a command, which ends with STATUS and prints TEXT.
expect() {
    local wanted=$1 text=$2 status=0
    shift 2
    "$@" >"$scratch/out" 2>&1 || status=$?
    if [ "$status" != "$wanted" ] || ! grep -qF -- "$text" "$scratch/out"; then
        echo "bare.sh: '$*' ended with $status, expected $wanted and '$text'. It printed:" >&2
        cat "$scratch/out" >&2
        failed=1
    fi
}

packages='pocl-opencl-icd ocl-icd-libopencl1'
join='SELECT count(*) AS n FROM range(0, 10) a JOIN range(5, 20) b ON a.value = b.value'
expect 0 '| 5 |' "$debug/horton-sql" -c "$join"
# A device by name is waited for: else kernels may still be compiled.
expect 0 '1 join on the host (no device' "$debug/horton-sql" --device auto -c "$join"
expect 1 "$packages" "$debug/horton-sql" devices
expect 1 "$packages" "$debug/examples/devices"
expect 0 "the rows are those of DataFusion's own plan" "$debug/examples/tpch_join" --scale 0.01 --query 3 --check
expect 1 "$packages" scripts/ensure-opencl.sh
if [ -e "$scratch/installs" ]; then
    cat "$scratch/installs" >&2
    failed=1
fi
[ "$failed" = 0 ] && echo "bare.sh: runs without OpenCL, and installs nothing"
exit "$failed"
