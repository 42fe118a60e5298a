#!/usr/bin/env bash
# stage.sh NAME COMMAND...: runs a command and says how long it took.
#
#   COMMAND ─▶ seconds on the clock, and of all cores ─▶ a line on stderr
#                                                     ─▶ a line of the file $STAGES, if that is set
#
# `.ci/run` sets STAGES, and prints the file as a table at its end.
set -uo pipefail
name=$1
shift

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
begun=$(date +%s)
status=0
"$@" || status=$?
# Only this shell knows what its commands took, not one in a pipe.
times >"$scratch"
cores=$(tail -n 1 "$scratch" | tr 'ms' '  ' | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }')
line=$(printf '%s\t%d\t%.0f\t%d' "$name" "$(($(date +%s) - begun))" "$cores" "$status")
echo "stage $line" >&2
[ -z "${STAGES:-}" ] || echo "$line" >>"$STAGES"
exit "$status"
