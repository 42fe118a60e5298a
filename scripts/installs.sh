#!/usr/bin/env bash
# installs.sh [SUITE]...: installs what release.sh made, as a user would, in bare roots of Debian 12
# (bookworm) and Debian 13 (trixie): without Rust, a compiler or OpenCL. Exit status 77: such a root
# cannot be made here, and why.
#
#   archive     ─▶ horton-sql ─▶ a join of Parquet files       ┐
#   horton-sql  ─▶ pip ─▶ the same                             ├─ on the host
#   horton-join ─▶ pip ─▶ the same from Python                 ┘
#   PoCL        ─▶ apt ─▶ the first and the last one ─ on the device
#   datafusion, polars, pyarrow, pandas, duckdb ─▶ pip ─▶ python/tests
#
# Prints a table of seconds and megabytes. DIST=DIR has the files in the place of target/dist.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh
. scripts/root.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$(realpath -m "${DIST:-$target/dist}")
suites=("$@")
[ $# != 0 ] || suites=(bookworm trixie)
# Names are found, certificates checked, and cores and memory counted as on this machine.
mounts="$PWD $dist /sys /etc/resolv.conf /etc/hosts /etc/ssl/certs"
peers=('datafusion==55.*' polars pyarrow pandas duckdb numpy pytest)
pip=(python -m pip install --quiet --disable-pip-version-check --no-cache-dir)
opencl=(pocl-opencl-icd ocl-icd-libopencl1)
join="SELECT count(*) AS n FROM '/tmp/trips.parquet' a JOIN '/tmp/trips.parquet' b USING (id)"

# the_one PATTERN: its file, of which there must be one.
the_one() {
    local found
    mapfile -t found < <(compgen -G "$dist/$1")
    [ ${#found[@]} = 1 ] || {
        echo "installs.sh: ${#found[@]} files are $dist/$1; scripts/release.sh makes one" >&2
        return 1
    }
    echo "${found[0]}"
}
archive=$(the_one 'horton-sql-*.tar.gz')
# Wheels by their paths: PyPI may have others of these names.
sql_wheel=$(the_one 'horton_sql-*.whl')
join_wheel=$(the_one 'horton_join-*.whl')

# inside COMMAND...
inside() {
    in_root "$root" "$mounts" HOME=/root DEBIAN_FRONTEND=noninteractive \
        PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

megabytes() { as_root du -sm "$root$1" 2>/dev/null | cut -f1; }

# timed NAME PATH COMMAND...: a line of the table, with the megabytes by which PATH has grown.
timed() {
    local name=$1 path=$2 before begun
    shift 2
    before=$(megabytes "$path") || before=0
    begun=$(date +%s%N)
    "$@"
    printf '| %s | %s | %s | %s |\n' "$suite" "$name" \
        "$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begun) / 1e9 }")" \
        "$(($(megabytes "$path") - before))" >>"$table"
}

new_venv() {
    as_root rm -rf "$root/venv"
    inside /usr/bin/python3 -m venv /venv
}

unpack() {
    as_root mkdir -p "$root/opt/shell"
    as_root tar -C "$root/opt/shell" --strip-components 1 -xzf "$archive"
}

# shell_joins WHERE PROGRAM OPTION...: fails unless a join runs there.
shell_joins() {
    local where=$1 said
    shift
    said=$(inside "$@" -c "COPY (SELECT value AS id FROM range(0, 100000)) TO '/tmp/trips.parquet'" \
        -c "$join" 2>&1) || {
        echo "$said"
        return 1
    }
    echo "$said"
    grep -q '^| 100000 |$' <<<"$said" && grep -qE "1 join on $where" <<<"$said"
}

# python_joins WHERE: the same from Python; `device` or `host`.
python_joins() {
    inside python - "$1" "$join" <<'P'
import sys

import horton_join

where, join = sys.argv[1:]
ctx = horton_join.SessionContext({"horton.enabled": "always"})
print(horton_join.devices(), ctx.warm_up() if where == "device" else "")
ctx.register_parquet("trips", "/tmp/trips.parquet")
frame = ctx.sql(join.replace("'/tmp/trips.parquet'", "trips"))
frame.show()
(decision,) = frame.decisions
print(decision)
assert (decision.device is not None) == (where == "device")
P
}

table=$(mktemp)
trap 'rm -f "$table"' EXIT
for suite in "${suites[@]}"; do
    root=$target/installs-$suite
    make_root "$root" "$suite" python3 python3-venv ca-certificates &&
        in_root "$root" "$mounts" true || {
        echo "installs.sh: not run: no root of $suite in $root" >&2
        exit 77
    }
    # What the last run left.
    as_root rm -rf "$root/opt/shell"
    inside apt-get update --quiet=2
    inside apt-get purge --quiet=2 --yes --autoremove "${opencl[@]}"

    timed 'horton-sql, archive' /opt unpack
    shell_joins 'the host' /opt/shell/horton-sql
    new_venv
    timed 'horton-sql, wheel' /venv inside "${pip[@]}" "$sql_wheel"
    shell_joins 'the host' horton-sql
    new_venv
    timed 'horton-join, wheel' /venv inside "${pip[@]}" "$join_wheel"
    python_joins host

    timed PoCL /usr inside apt-get install --quiet=2 --yes --no-install-recommends "${opencl[@]}"
    shell_joins '(cpu|pthread)' /opt/shell/horton-sql --set horton.enabled=always --device auto
    python_joins device
    timed "${peers[*]}" /venv inside "${pip[@]}" "${peers[@]}"
    timed python/tests /venv inside python -B -m pytest -q -c python/pyproject.toml \
        --rootdir python -p no:cacheprovider python/tests
done
printf '\n| Debian | what | s | MB |\n|---|---|---|---|\n'
cat "$table"
