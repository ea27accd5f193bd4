#!/bin/sh
# Create examples, agreement and keys of a trial with two sites: prepare.sh PARTIES [HOST:PORT]
#
# PARTIES holds a folder for each party: coordinator, north and south; each gets a folder `study`.
# TRANSPORT=flower: over Flower instead of HTTPS, with the distribution fallow-flower.
# In a real study each party does its part on its own machine, and the sites verify the fingerprint by telephone.
set -eu
parties=$1
address=${2:-coordinator:9092}
host=${address%:*}
port=${address##*:}
transport=${TRANSPORT:-https}
for program in fallow python; do
    command -v "$program" >/dev/null || {
        echo "there is no $program on the path: after 'make setup', set PATH=\$PWD/.venv/bin:\$PATH" >&2
        exit 2
    }
done
# written last: the admission of the second site
if grep -qs '"south"' "$parties/coordinator/study/sites.json"; then
    echo "$parties/coordinator/study is there: the trial is already prepared"
    exit 0
fi
for party in coordinator north south; do
    if [ -e "$parties/$party/study" ]; then
        echo "$parties/$party/study was begun and not finished: remove the folders study of all three" \
            "parties, and run this again" >&2
        exit 1
    fi
    mkdir -p "$parties/$party"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Fictitious patients: each site has its own, without the column of sites.  The last ones are test
# examples; the others have no label until annotators label them.
fallow new "$scratch/begin" --quiet
table=$scratch/begin/rows.csv
rows() { awk -F, -v OFS=, -v site="$1" -v from="$2" -v to="$3" -v known="$4" '
    NR == 1 { print "id", $3, $4, $5, $6; next }
    $2 == site && ++n >= from && n <= to { print $1, $3, $4, $5, known ? $6 : "" }' "$table"; }
rows east 1 60 1 >"$scratch/example.csv"
for site in north south; do
    rows $site 1 90 0 >"$parties/$site/rows.csv"
    rows $site 91 120 1 >"$parties/$site/test.csv"
done

fallow coordinate init "$parties/coordinator/study" --config demo --sites north,south \
    --example "$scratch/example.csv" --label outcome --sums exact --name trial \
    --set model=linear --set rounds=5 --set strategy=margin --set cycles=2 --set initial=10 --set budget=5 \
    --transport "$transport" --address "0.0.0.0:$port" --host "$host"
digest=$(fallow coordinate status "$parties/coordinator/study" --json |
    python -c 'import json, sys; print(json.load(sys.stdin)["digest"])')
# what the study takes from other distributions, which each site allows
allow=$(python -c 'import sys, tomllib
for name, described in tomllib.load(open(sys.argv[1], "rb"))["federation"].get("distributions", {}).items():
    print("--allow", name + "=" + described["digest"])' "$parties/coordinator/study/study.toml")
for site in north south; do
    # shellcheck disable=SC2086  # words of options
    fallow site init "$parties/$site/study" --study "$parties/coordinator/study/study.toml" \
        --name $site --data "$parties/$site/rows.csv" --test "$parties/$site/test.csv" \
        --address "$address" --digest "$digest" $allow
done
fallow coordinate admit "$parties/coordinator/study" \
    "$parties/north/study/join.json" "$parties/south/study/join.json"
echo "Prepared: coordinator, north and south."
