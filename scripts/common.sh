# Shared by the scripts: sourced, never run.
# shellcheck shell=bash

# The root of the project, independent of the current folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Where cargo puts what it builds (used by the scripts that source this file).
# shellcheck disable=SC2034
target=${CARGO_TARGET_DIR:-$root/target}

# Prints a line to standard error, which leaves standard output for the results.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$@"; exit 1; }

# Runs a cargo tool, and installs it first if it is missing. $1: the tool, the rest: the command.
cargo_tool() {
    local tool=$1
    shift
    if ! command -v "$tool" >/dev/null; then
        say "installing $tool (minutes, once)"
        cargo install --locked "$tool" || die "could not install $tool; try: cargo install --locked $tool"
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    "$@"
}
