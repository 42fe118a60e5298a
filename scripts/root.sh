# shellcheck shell=bash
# Sourced by scripts that run programs in a Debian root of their own, after scripts/apt.sh.
#
#   mmdebstrap ─▶ ROOT ◀─ /proc, /dev, files and folders of this machine at the same paths
#                  └─ chroot ─▶ COMMAND

# make_root ROOT SUITE PACKAGE...: makes a minimal Debian root, unless it is there.
make_root() {
    local root=$1 suite=$2 packages
    shift 2
    [ ! -d "$root" ] || return 0
    packages=$(IFS=, && echo "$*")
    scripts/ensure-tools.sh mmdebstrap >&2 || return
    as_root rm -rf "$root" "$root.new"
    as_root mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$root.new" \
        http://deb.debian.org/debian >&2 || return
    as_root mv "$root.new" "$root"
}

# in_root ROOT MOUNTS COMMAND...: runs a command of ROOT, in this folder. MOUNTS are paths of this
# machine, with spaces between them. They end with the process, so that nothing of them is left.
in_root() {
    local root=$1 mounts=$2
    shift 2
    # shellcheck disable=SC2016 # expanded inside
    as_root unshare --mount --propagation private bash -euc '
        root=$1 folder=$2 mounts=$3
        shift 3
        for path in /proc /dev $mounts; do
            if [ -d "$path" ]; then
                mkdir -p "$root$path"
            elif [ -e "$path" ]; then
                mkdir -p "$(dirname "$root$path")"
                touch "$root$path"
            else
                continue
            fi
            mount --rbind "$path" "$root$path"
        done
        exec chroot "$root" env --chdir="$folder" "$@"
    ' in_root "$root" "$PWD" "$mounts" "$@"
}
