#!/usr/bin/env bash
# newest.sh: tries the newest DataFusion 55.x in the place of the one in Cargo.lock.
#
#   tracked files ─▶ target/newest, "=55.2" lifted to "55" ─▶ cargo update ─▶ lints, tests of joins
#
# We wrap HashJoinExec. A minor release may add a property to it that changes its rows, or a method
# that a wrapper has to pass on. So a release of ours is pinned to one minor, and this says early
# what the next one asks for.
# Exit status 77: there is no newer one.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
copy=$target/newest
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | tar --null --create --files-from - | tar --extract --directory "$copy"
cd "$copy"

pinned() { cargo metadata --format-version 1 | tr '{' '\n' | sed -n 's/^"name":"datafusion","version":"\([^"]*\)".*/\1/p'; }
before=$(pinned)
sed -i '/^datafusion/s/"=55\.[0-9.]*"/"55"/' Cargo.toml
cargo update --quiet $(sed -n 's/^name = "\(datafusion[a-z-]*\)"/\1/p' Cargo.lock | sort -u)
after=$(pinned)
if [ "$before" = "$after" ]; then
    echo "newest.sh: DataFusion $before is the newest 55.x" >&2
    exit 77
fi
echo "newest.sh: DataFusion $after in the place of $before" >&2
export CARGO_TARGET_DIR=$target/newest-target
# The copy keeps the times of its files, by which cargo would take an older build for this one.
cargo clean --quiet --workspace
cargo clippy --workspace --all-targets -- -D warnings
cargo test --workspace --lib --test joins
