#!/bin/sh
# Four hospitals and a coordinator on this machine, each a process of its own with its own keys,
# over HTTPS. One command starts everything, and Ctrl-C ends everything:
#
#     sh examples/heart/try.sh [FOLDER] [--annotators]
#
# A script labels the examples; with --annotators, the commands that open the labeling pages are
# printed instead. It takes a few minutes; after a Ctrl-C the same command resumes.
# FALLOW_DATA names the folder of the heart disease data ('fallow datasets heart'); without it the sites share a dataset of
# scikit-learn.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=runs/heart annotators=no
for word in "$@"; do
    case $word in
        --annotators) annotators=yes ;;
        -*) echo "there is no option $word, only --annotators" >&2; exit 2 ;;
        *) out=$word ;;
    esac
done

# A program by its name or path, here or in the repository, or as 'make setup' installs it.
program() {
    for found in "$1" "$root/$1" "$root/.venv/bin/$1"; do
        if command -v "$found"; then return; fi
    done
    echo "there is no $1: run 'make setup' in $root, or pip install '.[deploy]' ./packages/fallow there" >&2
    return 2
}
FALLOW=$(program "${FALLOW:-fallow}")
beside=$(dirname "$FALLOW")/python
[ -x "$beside" ] || beside=python
PYTHON=$(program "${PYTHON:-$beside}")
export OMP_NUM_THREADS=1

started=
# In a session of its own, so that a Ctrl-C of this terminal is heard here, and by each once.
aside() {
    "$PYTHON" -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' "$@" &
    last=$!
    started="$started $last"
}
finish() {
    trap - EXIT INT TERM HUP
    # shellcheck disable=SC2086  # a list of numbers
    [ -z "$started" ] || kill $started 2>/dev/null || true
    wait
}
interrupted() {
    echo
    echo "== Stopping all parties; the same command resumes"
    exit "$1"
}
trap finish EXIT
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
trap 'interrupted 129' HUP

prepare() {
    echo "== 1 of 4: the data of each hospital"
    sites=$("$PYTHON" "$here/make_sites.py" "$out/data")
    names=$(echo "$sites" | tr , ' ')
    for name in $names; do
        echo "   $name: $(($(wc -l <"$out/data/$name.csv") - 1)) rows without labels"
    done
    port=$("$PYTHON" -c 'import socket as s; x = s.create_server(("127.0.0.1", 0)); print(x.getsockname()[1])')

    echo "== 2 of 4: the coordinator writes the agreement, $out/coordinator/study.toml"
    "$FALLOW" coordinate init "$out/coordinator" --config "$here/settings.toml" --sites "$sites" \
        --example "$out/data/example.csv" --label disease --sums exact --name heart \
        --address "127.0.0.1:$port" --host 127.0.0.1 >"$out/coordinator.txt"
    # units and limits are agreed on before sites join
    study=$out/coordinator/study.toml
    sed -e 's/name = "age", unit = ""/name = "age", unit = "years", low = 0, high = 120/' \
        -e 's/name = "resting_pressure", unit = ""/name = "resting_pressure", unit = "mmHg", low = 50, high = 250/' \
        -e 's/name = "max_heart_rate", unit = ""/name = "max_heart_rate", unit = "beats a minute"/' \
        -e 's/name = "st_depression", unit = ""/name = "st_depression", unit = "mm"/' \
        "$study" >"$study.new"
    mv "$study.new" "$study"

    echo "== 3 of 4: each hospital verifies it, checks its data and creates keys; output of one"
    # between organizations, the coordinator tells it to the sites by telephone
    digest=$("$FALLOW" coordinate status "$out/coordinator" --json |
        "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["digest"])')
    for name in $names; do
        aside "$FALLOW" site init "$out/$name" --study "$study" --name "$name" \
            --data "$out/data/$name.csv" --test "$out/data/$name-test.csv" \
            --address "127.0.0.1:$port" --digest "$digest" >"$out/$name.txt" 2>&1
    done
    for one in $started; do
        wait "$one" || { cat "$out"/*.txt >&2; exit 1; }
    done
    started=
    sed 's/^/   | /' "$out/${names%% *}.txt"
    joins=
    for name in $names; do joins="$joins $out/$name/join.json"; done
    # shellcheck disable=SC2086  # a list of files
    "$FALLOW" coordinate admit "$out/coordinator" $joins
    echo "$names" >"$out/ready"
}

if [ -e "$out/ready" ]; then
    names=$(cat "$out/ready")
    echo "== $out exists: the study resumes"
elif [ -e "$out" ]; then
    echo "$out exists and is not a study to resume: remove it, or give another folder" >&2
    exit 2
else
    prepare
fi

echo "== 4 of 4: all parties start; connecting takes up to a minute"
for name in $names; do
    aside "$FALLOW" site start "$out/$name" >>"$out/$name.log" 2>&1
done
if [ "$annotators" = yes ]; then
    echo "   Label each hospital in a separate terminal:"
    for name in $names; do echo "      $FALLOW label $out/$name"; done
else
    aside "$PYTHON" "$here/annotate.py" "$out" >>"$out/annotators.log" 2>&1
    echo "   A script labels: $out/annotators.log"
fi
echo "   Logs of the hospitals: $out/NAME.log. Progress, from another terminal:"
echo "      $FALLOW coordinate status $out/coordinator"
echo "   Ctrl-C stops all parties without loss."
aside "$FALLOW" coordinate start "$out/coordinator"
wait "$last" || {
    echo "== The coordinator ended with an error; the same command resumes" >&2
    exit 1
}
# it also ends without an error after 'coordinate stop'
state=$("$FALLOW" coordinate status "$out/coordinator" --json |
    "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["state"])')
if [ "$state" != finished ]; then
    echo "== The coordinator has stopped before the end of the study; the same command resumes"
    exit 3
fi
echo "== Done. The results: $out/coordinator/report.html"
echo "   At each hospital: $out/NAME/model.safetensors and $out/NAME/model-card.md"
