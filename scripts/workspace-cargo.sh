#!/usr/bin/env bash
# workspace-cargo.sh ARGUMENT...: cargo for maturin, by its variable CARGO, as scripts/python.sh
# sets it.
#
# maturin builds its crate alone (`cargo rustc`), with only the features that this one asks for, and
# so would build DataFusion a second time. The crate is a member of the workspace: here it is built
# as the other tests are, with all members, and cargo's messages tell maturin where the library is.
# Everything else goes to cargo as it came.
set -euo pipefail
if [ "${1:-}" != rustc ]; then
    exec cargo "$@"
fi
# Those of maturin alone would have cargo build PyO3 once for it and once for everybody else.
unset PYO3_PYTHON PYTHON_SYS_EXECUTABLE PYO3_ENVIRONMENT_SIGNATURE PYO3_BUILD_EXTENSION_MODULE \
    PYO3_CONFIG_FILE
profile=()
while [ $# -gt 0 ]; do
    case $1 in
    --release) profile=(--release) ;;
    --profile) profile=(--profile "$2") ;;
    esac
    shift
done
# An example, as that brings in the features of dev-dependencies: those of `cargo test --workspace`.
exec cargo build "${profile[@]}" --workspace --lib --example tpch_join --message-format json-render-diagnostics
