#!/usr/bin/env bash
# durations.sh [--write]: prints how long the stages of the last CI run took, as a Markdown table.
#
#   .ci/run ─▶ scripts/stage.sh, scripts/suites.sh ─▶ target/stages.tsv ─▶ this table
#                                     --write ─▶ tests/README.md, between its two marks
#
# STAGES names the file. Suites and other stages run side by side (scripts/beside.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
stages=${STAGES:-target/stages.tsv}
page=tests/README.md
[ -s "$stages" ] || {
    echo "durations.sh: no stage in $stages: .ci/run writes it" >&2
    exit 1
}

table() {
    echo "Printed by \`.ci/run\` on $(date -r "$stages" +%F): $(nproc) cores, $(rustc --version | cut -d' ' -f1,2)."
    echo
    echo '| stage | seconds | seconds of all cores |'
    echo '|---|--:|--:|'
    awk -F '\t' '{ printf "| %s%s | %s | %s |\n", $1, ($4 == 77 ? ", not run" : $4 > 0 ? ", failed" : ""), $2, $3 }' "$stages"
}

if [ "${1:-}" != --write ]; then
    table
    exit
fi
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
{
    sed -n '1,/<!-- durations -->/p' "$page"
    echo
    table
    echo
    sed -n '/<!-- end of durations -->/,$p' "$page"
} >"$scratch"
cat "$scratch" >"$page"
