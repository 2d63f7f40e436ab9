# Shared by the scripts: sourced, never run.
# shellcheck shell=bash

# The root of the project, independent of the current folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Where cargo puts what it builds (used by the scripts that source this file).
# shellcheck disable=SC2034
target=${CARGO_TARGET_DIR:-$root/target}

# The packages that the tests build: with the same packages, dependencies have the same features in each part, and are
# compiled once. What links librdkafka, which takes minutes of a C++ compiler, only where Kafka is tested.
# shellcheck disable=SC2034
whole=(--locked --workspace --exclude multimqc-kafka)
# shellcheck disable=SC2034
everything=(--locked --workspace)
# Builds some of these packages' targets, with the examples: what they depend on has the features that it has for tests, and programs alone would
# compile it again with fewer.
build_whole() { cargo build "${whole[@]}" --examples "$@"; }

# The files that the parts c and python of scripts/test leave for the part languages: the installed C library, the C and C++
# examples, and a virtual environment with the wheel.
# shellcheck disable=SC2034
languages=$target/languages

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

# Fetches the jars of Apache Kafka from Maven Central, once. $1: their folder.
kafka_jars() {
    [[ -e $1/complete ]] && return
    say "fetching Kafka's jars"
    mkdir -p "$1"
    timeout 600 mvn --quiet --batch-mode -f "$root/multimqc/kafka/tests/pom.xml" dependency:copy-dependencies \
        "-DoutputDirectory=$(cd "$1" && pwd)" >&2 && touch "$1/complete"
}

# Starts a program in the background, as $started, and waits for the address that it prints, which goes to $at. Its standard
# output goes to $scratch/got. $1: what precedes the address, the rest: the command.
start() {
    local before=$1
    shift
    rm -f "$scratch/got" "$scratch/messages"
    "$@" >"$scratch/got" 2>"$scratch/messages" &
    started=$!
    for _ in {1..600}; do
        at=$(sed -n "s/.*$before\([^;]*\).*/\1/p" "$scratch/got" "$scratch/messages" 2>/dev/null) || true
        [[ $at ]] && return
        sleep 0.1
    done
    die "$1 does not start"
}

# Ends every program that this script started and that still runs, and waits until they have written what they write at their end: for ten seconds.
stop_jobs() {
    { jobs -p | xargs -r kill; } 2>/dev/null || true
    for _ in {1..100}; do
        [[ $(jobs -pr) ]] || break
        sleep 0.1
    done
}

# Finds the programs of each language in $languages, for `example`: $present are the languages that are there. The others are
# skipped, which is said.
find_languages() {
    # The examples of Python import each other, and leave nothing beside them.
    export LD_LIBRARY_PATH=$languages/usr/lib PYTHONDONTWRITEBYTECODE=1
    declare -gA folders=([rust]=$target/debug/examples [c]=$languages/c/build [cpp]=$languages/cpp [python]=examples/python)
    # A program of each language shows that the others of the language are there.
    local -A shown_by=([rust]=$target/debug/rbmq [c]=$languages/c/build/broker [cpp]=$languages/cpp/broker
        [python]=$languages/python/installed)
    local language
    present=()
    for language in rust c cpp python; do
        if [[ -e ${shown_by[$language]} ]]; then
            present+=("$language")
        else
            say "SKIPPED: $language (${shown_by[$language]} is not there)"
        fi
    done
}

# Sets $command to the command of an example. $1: the language, $2: its name.
example() {
    command=("${folders[$1]}/$2")
    [[ $1 == python ]] && command=("$languages/python/bin/python" "${folders[python]}/$2.py")
    return 0
}
