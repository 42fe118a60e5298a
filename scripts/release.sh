#!/usr/bin/env bash
# release.sh [PART]...: makes the files of a release in target/dist, all of them without PART.
#
#   crates  ─▶ *.crate       the members for crates.io, packed as `cargo publish` packs them
#   wheels  ─▶ *.whl         horton-join and horton-sql for Python: any Linux with glibc 2.28
#   archive ─▶ *.tar.gz      horton-sql by itself
#   book    ─▶ *-book.tar.gz docs/
#   sums    ─▶ SHA256SUMS
#
# Wheels are linked by zig, whose linker names an older glibc than this machine's. maturin and zig
# come by pip, into target/release-tools; INSTALL=0 refuses. The first build takes an hour on two
# cores. scripts/installs.sh installs what is there.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$target/dist
tools=$target/release-tools
triple=x86_64-unknown-linux-gnu
# RHEL 8, Debian 10, Ubuntu 20.04, and whatever is newer.
glibc=manylinux_2_28
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# In the order in which they depend on each other, which is that of publishing.
crates=(horton-opencl-loader horton-tables horton-trace horton-join horton-sql horton-ballista
    horton-distributed)

get_tools() {
    [ ! -x "$tools/bin/maturin" ] || return 0
    if [ "${INSTALL:-1}" = 0 ]; then
        echo "release.sh: wheels need maturin and ziglang of PyPI (INSTALL=0 installs nothing)" >&2
        return 1
    fi
    echo "release.sh: installs maturin and ziglang with pip, into $tools" >&2
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9.4,<2' ziglang
}

pack_crates() {
    rm -f "$dist"/*.crate
    cargo package --locked --no-verify "${crates[@]/#/--package=}"
    for crate in "${crates[@]}"; do
        cp "$target/package/$crate-$version.crate" "$dist"
    done
}

build_wheels() {
    get_tools
    rm -f "$dist"/*.whl
    for member in python sql; do
        PATH=$tools/bin:$PATH CARGO_INCREMENTAL=0 "$tools/bin/maturin" build --release --strip \
            --locked --zig --target "$triple" --compatibility "$glibc" \
            --manifest-path "$member/Cargo.toml" --out "$dist"
    done
}

# The program of the wheel, so that both are one.
pack_archive() {
    local name=horton-sql-$version-$triple folder
    rm -f "$dist"/horton-sql-*.tar.gz
    folder=$(mktemp -d)
    mkdir "$folder/$name"
    python3 - "$dist"/horton_sql-"$version"-*.whl "$folder/$name/horton-sql" <<'P'
import sys
import zipfile

wheel, program = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    (name,) = [n for n in files.namelist() if n.endswith(".data/scripts/horton-sql")]
    with open(program, "wb") as out:
        out.write(files.read(name))
P
    chmod 755 "$folder/$name/horton-sql"
    cp sql/README.md LICENSE "$folder/$name"
    tar -C "$folder" --owner 0 --group 0 -czf "$dist/$name.tar.gz" "$name"
    rm -rf "$folder"
}

pack_book() {
    rm -f "$dist"/*-book.tar.gz
    scripts/book.sh
    tar -C target --owner 0 --group 0 -czf "$dist/horton-join-$version-book.tar.gz" book
}

write_sums() {
    (cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort |
        xargs sha256sum >SHA256SUMS)
}

parts=("$@")
[ $# != 0 ] || parts=(crates wheels archive book sums)
mkdir -p "$dist"
for part in "${parts[@]}"; do
    case $part in
    crates) pack_crates ;;
    wheels) build_wheels ;;
    archive) pack_archive ;;
    book) pack_book ;;
    sums) write_sums ;;
    *)
        echo "release.sh does not know $part: crates, wheels, archive, book, sums" >&2
        exit 1
        ;;
    esac
done
ls -l "$dist"
