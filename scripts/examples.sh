#!/usr/bin/env bash
# examples.sh FOLDER: runs the short examples, which `cargo build --examples` has built there, and
# looks for a line that each must print.
set -euo pipefail
bin=$1

# expect NAME PATTERN: runs the example. One of its lines must match.
expect() {
    local printed
    printed=$("$bin/$1")
    grep -qP "$2" <<<"$printed" || {
        echo "examples.sh: $1 printed no line like '$2':" >&2
        echo "$printed" >&2
        return 1
    }
}
expect first_join '^\| Lima +\| 16 +\|$'
expect decision '^  Left side built, 20000 rows, on (?!the host)'
expect horton_table '^keys that are there: 262144 of 262144 found$'
expect multimap '^probe row 2 and build row 2 have key 5$'
expect changing_table '^1, 2, 100, 101: \[Some\(0\), None, None, Some\(101\)\]$'
