#!/usr/bin/env bash
# book.sh: makes a book of docs/ in target/book. mdBook is built into target/tools if the system has
# none; INSTALL=0 refuses.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools/mdbook-$version
export PATH=$tools/bin:$PATH
if ! command -v mdbook >/dev/null; then
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "book.sh: mdbook is missing: cargo install mdbook (INSTALL=0 installs nothing)" >&2
        exit 1
    fi
    echo "book.sh: builds mdBook with cargo, into $tools (INSTALL=0 to refuse)" >&2
    cargo install --quiet --debug --locked --no-default-features --root "$tools" "mdbook@$version"
fi
mdbook build docs
