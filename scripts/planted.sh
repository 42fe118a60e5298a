#!/usr/bin/env bash
# planted.sh [NUMBERS...]: which tests find which of the faults in tests/planted/faults.patch.
#
#   faults.patch ─▶ a copy of the tree ─ built once ─▶ HORTON_PLANT=7 ─▶ each means ─▶ a table
#
# All faults are in one build, and off until HORTON_PLANT says a number: in kernels, as a define of
# the programs that ask for it. A means finds a fault if it fails, crashes or does not end. Without
# a fault (number 0) it must pass, so that comes first. A run stops at its first failure.
#
# Without arguments: all faults. MEANS="pocl amd" takes some of the means. What came of each run
# stays in target/planted, so that a further call adds to it: results, the log of each run, and
# table.md. Delete that folder to begin anew, and after a change of the tests or of the patch. The
# build has a target folder of its own there, as it would be taken for that of this tree else.
# PLANTED_OUT is another folder, PLANTED_LONGEST the seconds after which a run hangs,
# PLANTED_SECONDS those for which seeds are drawn. WITH="nice -n 10" goes before each run.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=${PLANTED_OUT:-$target/planted}
patch=tests/planted/faults.patch
bin=$out/bin
all_means=(pocl oclgrind rusticl simulated amd)
longest=${PLANTED_LONGEST:-600}
seconds=${PLANTED_SECONDS:-60}

# ---------------------------------------------------------------- the means, with a fault or none

# The root that scripts/rusticl.sh has set up, here or for .ci/run.
root=$(find "$target" "$HOME/.cache/horton-join-ci" -maxdepth 2 -type d -name 'rusticl-*' \
    2>/dev/null | head -n 1 || true)

# inside TYPE COMMAND...: as in scripts/rusticl.sh.
inside() {
    # shellcheck disable=SC2016 # expanded inside
    unshare --mount --propagation private bash -euc '
        root=$1
        shift
        for path in "$@"; do
            [ "$path" != -- ] || break
            mkdir -p "$root$path"
            mount --rbind "$path" "$root$path"
            shift
        done
        shift
        exec chroot "$root" "$@"
    ' rusticl "$root" /proc /dev "$out" "$HORTON_CACHE_DIR" -- env OCL_ICD_VENDORS=rusticl.icd \
        RUSTICL_ENABLE=llvmpipe RUSTICL_DEVICE_TYPE="$1" "${@:2}"
}

# Suites that cannot reach a kind of fault are left out.
means_pocl() {
    "$bin/unit_tables"
    "$bin/unit_join"
    if [ "$HORTON_PLANT" = 0 ] || [ "$HORTON_PLANT" -gt 10 ]; then
        "$bin/processes" drivers::queue_threads drivers::several::a_lost \
            drivers::several::a_promised faults::beside faults::reserved
        HORTON_TEST_FAULTS_CASE="full, visits" "$bin/processes" faults::sweep
        # A chunk of these has several windows of pairs.
        HORTON_TEST_FAULTS_CASE="strings, many pairs" "$bin/processes" faults::sweep
        "$bin/joins" join::limits::a_probe_chunk
        "$bin/processes" faults::cancel faults::hang faults::session
    fi
    if [ "$HORTON_PLANT" -le 20 ]; then
        "$bin/tables" --skip table_ops::fuzz --skip table_ops::load --skip a_key_repeated
        "$bin/joins" join::join_types promised::order join::key_types::several
    fi
}

# What oclgrind finds changes neither a kernel's results nor an exit status, and each context opens
# the log again. So the log is a pipe, and each of its lines is one of this run.
means_oclgrind() {
    local lib pipe=$HORTON_CACHE_DIR/pipe
    lib=$(dirname "$(dirname "$(command -v oclgrind)")")/lib/oclgrind/liboclgrind-rt.so
    mkfifo "$pipe"
    exec 3<>"$pipe"
    sed -u 's/^/oclgrind: /' <"$pipe" 3>&- &
    HORTON_OPENCL_LIBRARY=$lib OCLGRIND_DATA_RACES=1 OCLGRIND_LOG=$pipe "$bin/tables" \
        --test-threads=1 multimap::repeating_keys multimap::rows_set wide::codes_of_one_word 3>&-
    exec 3>&-
    wait
}

# As a CPU it maps memory that the host and kernels share.
means_rusticl() {
    inside gpu "$bin/joins" join::join_types::every_join_type_runs join::key_types::several
    inside cpu "$bin/joins" join::join_types::every_join_type_runs_with_unique_build_keys
}

# Processes side by side, as most of them wait for a driver that hangs.
means_simulated() {
    export HORTON_OPENCL_LIBRARY=$bin/libhorton_driver.so POCL_DEVICES=basic
    export HORTON_TEST_SEEDS=100000 HORTON_TEST_SECONDS=$seconds
    local first of=() one
    for first in 1 100001 200001 300001; do
        HORTON_DRIVER="gfx90a pocl seed=$first cache=$out/amd" HORTON_TEST_SEED=$first \
            "$bin/processes" --exact --nocapture \
            faults::simulated::joins_survive_whatever_a_driver_does &
        of+=($!)
    done
    for one in "${of[@]}"; do wait "$one"; done
}

means_amd() {
    export HORTON_OPENCL_LIBRARY=$bin/libhorton_driver.so
    local round
    for round in 'gfx1100 mixed seed=1' 'gfx90a rusticl mixed seed=2'; do
        export HORTON_DRIVER="$round cache=$out/amd"
        local these=(table::device_built multimap::repeating_keys multimap::rows_set)
        [[ $round == *rusticl* ]] || these+=(wide::codes_of_one_word)
        "$bin/tables" --test-threads=2 "${these[@]}"
        "$bin/joins" --test-threads=2 join::join_types::every_join_type_runs \
            join::key_types::several
    done
}

if [ "${1:-}" = means ]; then
    "means_$2"
    exit
fi

# ---------------------------------------------------------------- one build

build() {
    local scratch=$out/tree
    mkdir -p "$bin"
    [ -e "$scratch" ] || git worktree add --detach "$scratch" HEAD
    (
        cd "$scratch"
        git checkout --quiet --force "$(git -C "$tree" rev-parse HEAD)"
        git clean --quiet --force -d
        git apply --3way "$tree/$patch"
        export CARGO_TARGET_DIR=$out/target
        local kinds=(--lib --test joins --test tables --test processes) made name
        made=$(cargo test --workspace --no-run "${kinds[@]}" 2>&1 | tee >(cat >&2) |
            sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
        for name in joins tables processes horton_join horton_tables; do
            cp "$(grep -E "/$name-[0-9a-f]+$" <<<"$made")" "$bin/$name"
        done
        mv "$bin/horton_join" "$bin/unit_join"
        mv "$bin/horton_tables" "$bin/unit_tables"
        # The drivers of tests: the shim is a dependency of theirs, the other is built by itself.
        cargo build --package horton-driver
        cp "$out/target/debug/deps/libhorton_opencl_shim.so" "$bin"
        cp "$out/target/debug/libhorton_driver.so" "$bin"
    )
}

# ---------------------------------------------------------------- runs

# attempt FAULT MEANS: runs the means until it ends, fails or takes too long. Prints what came of
# it, the seconds, and the first test that failed.
attempt() {
    local log=$out/logs/$1-$2 cache began pid status=0 what test
    cache=$(mktemp -d)
    ${WITH:-env} true
    began=$SECONDS
    : >"$log" # that of an earlier run would be read
    setsid env HORTON_PLANT="$1" HORTON_CACHE_DIR="$cache" HORTON_TEST_SMALL=1 \
        ${WITH:-env} "$tree/scripts/planted.sh" means "$2" >"$log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! grep -qE '\.\.\. FAILED$|^oclgrind: ' "$log"; do
        [ $((SECONDS - began)) -lt "$longest" ] || break
        sleep 0.5
    done
    if grep -qE '\.\.\. FAILED$|^oclgrind: ' "$log"; then
        what=fails
    elif kill -0 $pid 2>/dev/null; then
        what=hangs
    fi
    kill -KILL -- -$pid 2>/dev/null || true
    wait $pid 2>/dev/null || status=$?
    if [ -z "${what:-}" ]; then
        what=passes
        [ $status = 0 ] || what=fails
        [ $status -le 128 ] || what=crashes
    fi
    test=$(sed -nE '/^oclgrind: /{p;q}; /FAILED$/{s/^test (.*) \.\.\. FAILED$/\1/p;q}' "$log")
    rm -rf "$cache"
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$what" $((SECONDS - began)) "$test"
}

# Those faults whose code a means does not run at all: tables alone do not recover.
is_idle() { [ "$2" = oclgrind ] && [ "$1" -gt 20 ]; }

# Succeeds if a run is not among the results yet.
is_missing() {
    awk -F'\t' -v fault="$1" -v means="$2" '$1 == fault && $2 == means { exit 1 }' "$out/results"
}

run_all() {
    local fault name
    for fault in "$@"; do
        for name in ${MEANS:-${all_means[*]}}; do
            [ "$name" != rusticl ] || [ -n "$root" ] || continue
            is_idle "$fault" "$name" && continue
            is_missing "$fault" "$name" || continue
            attempt "$fault" "$name" | tee -a "$out/results"
        done
    done
}

# ---------------------------------------------------------------- the table

# The faults are listed at the top of the patch: number | kind | where | what it does.
table() {
    awk -F'\t' -v means="${all_means[*]}" '
        BEGIN { n = split(means, mean, " ") }
        FNR == NR { what[$1, $2] = $3; next }
        !/^[0-9]+ \| / { next }
        {
            split($0, part, " \\| ")
            number = part[1]
            if (part[2] != kind) {
                kind = part[2]
                kinds[++k] = kind
                printf "\n### %s\n\n| | where | what it does |", kind
                for (m = 1; m <= n; ++m) printf " %s |", mean[m]
                printf "\n|--:|---|---|"
                for (m = 1; m <= n; ++m) printf "---|"
                print ""
            }
            printf "| %s | `%s` | %s |", number, part[3], part[4]
            any = 0
            for (m = 1; m <= n; ++m) {
                came = what[number, mean[m]]
                if (came != "" && came != "passes") { ++found[kind, m]; any = 1 }
                printf " %s |", came == "" ? "–" : came == "passes" ? "" : came
            }
            ++all[kind]
            found[kind, 0] += any
            print ""
        }
        END {
            printf "\n### Found\n\n| | faults |"
            for (m = 1; m <= n; ++m) printf " %s |", mean[m]
            printf " any |\n|---|--:|"
            for (m = 0; m <= n; ++m) printf "--:|"
            print ""
            for (i = 1; i <= k; ++i) {
                printf "| %s | %d |", kinds[i], all[kinds[i]]
                for (m = 1; m <= n; ++m) printf " %d |", found[kinds[i], m]
                printf " %d |\n", found[kinds[i], 0]
            }
        }
    ' "$out/results" "$patch"
}

mkdir -p "$out/logs"
touch "$out/results"
[ -e "$bin/libhorton_driver.so" ] || build
numbers=("$@")
[ $# != 0 ] || mapfile -t numbers < <(seq 30)
run_all 0
if awk -F'\t' '$1 == 0 && $3 != "passes"' "$out/results" | grep .; then
    echo "planted.sh: these fail without a fault" >&2
    exit 1
fi
run_all "${numbers[@]}"
table | tee "$out/table.md"
