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
for manifest in Cargo.toml */Cargo.toml tests/*/Cargo.toml; do
    # Those without DataFusion are built in seconds, and with the features that they need.
    grep -q '^workspace-hack' "$manifest" || continue
    member=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    for edges in normal,build normal,build,dev; do
        crates "$edges" --package "$member" | comm -23 - "$scratch/all" >"$scratch/other"
        while IFS= read -r crate; do
            echo "features.sh: $member alone builds $crate" >&2
            failed=1
        done < <(join "$scratch/ours" "$scratch/other")
    done
done
if [ "$failed" != 0 ]; then
    echo "Run cargo hakari generate (cargo install cargo-hakari): CONTRIBUTING.md" >&2
    exit 1
fi
echo "features.sh: each member alone is built of what the workspace is built of"
