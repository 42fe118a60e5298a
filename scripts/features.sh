#!/usr/bin/env bash
# features.sh: checks that DataFusion is compiled once, whichever member of the workspace is built.
#
#   cargo tree --workspace ─▶ crates and their features ─┐
#   cargo tree -p MEMBER   ─▶ crates and their features ─┴▶ the same, for all that horton-join needs
#
# A crate is compiled once for each set of features that members ask for, and so is all that depends
# on it. scripts/workspace-hack asks for the union of them. `cargo tree` resolves features as a
# build does, with those of tests and without.
set -euo pipefail
export LC_ALL=C # one order for sort, comm and join
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# crates EDGES ARGUMENT...: prints each crate with its features.
crates() {
    cargo tree --locked --prefix none --format '{p} [{f}]' --edges "$@" |
        sed -n 's/ (\*)$//; / (\//d; s/ v/@/p' | sort -u
}

crates normal,build,dev --workspace >"$scratch/all"
crates normal,build --package horton-join | cut -d' ' -f1 | sort -u >"$scratch/ours"
failed=0
for manifest in Cargo.toml */Cargo.toml tables/support/Cargo.toml tests/*/Cargo.toml; do
    member=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    case $member in
    # Without DataFusion they are built in seconds, with the features that they need.
    horton-driver | horton-lint | horton-opencl-loader | horton-opencl-shim | horton-tables*) continue ;;
    esac
    grep -q '^workspace-hack' "$manifest" || {
        echo "features.sh: $manifest lacks workspace-hack" >&2
        failed=1
    }
    for edges in normal,build normal,build,dev; do
        crates "$edges" --package "$member" | comm -23 - "$scratch/all" >"$scratch/other"
        join "$scratch/ours" "$scratch/other" >"$scratch/differ"
        [ -s "$scratch/differ" ] || continue
        sed "s/^/features.sh: $member alone builds /" "$scratch/differ" >&2
        failed=1
    done
done
if [ "$failed" != 0 ]; then
    echo "Run cargo hakari generate (cargo install cargo-hakari): CONTRIBUTING.md" >&2
    exit 1
fi
echo "features.sh: each member alone is built of what the workspace is built of"
