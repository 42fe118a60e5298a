#!/usr/bin/env bash
# suites.sh: runs all tests of the workspace, and says how long each suite took.
#
#   cargo test --workspace ─▶ its output, and when each "Running …" came ─▶ the file $STAGES
#
# One command of cargo for all suites: cargo holds a lock while it compiles, not while tests run. So
# they run while others compile (scripts/beside.sh). All suites run, also after one that fails.
set -uo pipefail
cd "$(dirname "$0")/.."

suite='' begun=$SECONDS
# note NEXT: notes how long the suite took that ran until now, if it was a second or more.
note() {
    [ -z "$suite" ] || [ -z "${STAGES:-}" ] || [ $((SECONDS - begun)) -lt 1 ] ||
        printf '%s\t%d\t\t\n' "suite $suite" "$((SECONDS - begun))" >>"$STAGES"
    suite=$1 begun=$SECONDS
}

env -u HORTON_TEST_SMALL cargo test --workspace --no-fail-fast 2>&1 | {
    while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line"
        case $line in
        *Running*\(*/deps/*\))
            program=${line##*/deps/}
            note "${program%-*}"
            ;;
        *Doc-tests*) note "doc tests of ${line##*Doc-tests }" ;;
        esac
    done
    note ''
}
exit "${PIPESTATUS[0]}"
