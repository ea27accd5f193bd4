#!/bin/sh
# AHFAL Table 1 (Dirichlet 0.1), FairFAL's long tail and DPFL's Table 1 cell in full size, from a
# copy of the source on a machine on which it is installed (pip install -e .).
#
#   FALLOW_DATA=/where/cifar10/is scripts/full_protocol.sh            all of it, on the GPU
#   scripts/full_protocol.sh --tiny                                   a rehearsal of a minute
#   scripts/full_protocol.sh ahfal --precision bf16 --jobs 3          one study
#
# Stopped, it goes on where it was when it is called again.  'fallow datasets cifar10' lists the
# files of the data.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
PYTHONPATH="$here/src:$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "${PYTHON:-python3}" -m bench.full_protocol "$@"
