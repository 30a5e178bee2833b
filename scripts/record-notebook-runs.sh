#!/usr/bin/env bash
# Records the runs that the notebooks read into notebooks/runs/, and executes the notebooks on them. About a minute.
#
#     record-notebook-runs.sh [PYTHON]
#
# PYTHON is the Python of an environment with requirements-dev.txt (default .venv/bin/python). There are five interleaved pairs at
# level light, from which the ratios come; a detailed run of each side at level standard; and a longer light run with frequent samples.
# Chunks of 1,000 tokens keep the files small. Paths of this machine are shortened: files in this folder get relative paths, and
# files of Python and its packages lose the path of their installation.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD python=${1:-.venv/bin/python} out=notebooks/runs
command -v "$python" >/dev/null || {
    echo "error: $python not found; name the Python of an environment: record-notebook-runs.sh PYTHON" >&2
    exit 2
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
PATH=$(cd "$(dirname "$(command -v "$python")")" && pwd):$PATH
export PATH
read -r packages library <<<"$(python -c 'from sysconfig import get_path; print(get_path("purelib"), get_path("stdlib"))')"

pack='
import sys, zipfile
from pathlib import Path
run, archive = map(Path, sys.argv[1:])
with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
    for path in sorted(run.rglob("*")):
        file.write(path, path.relative_to(run.parent))
'

trainer() {
    local variant=$1
    shift
    echo python -m reference_trainer.lm --variant "$variant" --device host --tokens-per-chunk 1000 "$@"
}

# record NAME VARIANT "OPTIONS OF run" OPTIONS OF THE TRAINER...
record() {
    local name=$1 variant=$2 options=$3
    shift 3
    # shellcheck disable=SC2046,SC2086  # these expand to several words
    python -m profiler run $options --label "$variant" --out "$scratch/$name" -- $(trainer "$variant" "$@")
    find "$scratch/$name" -name '*.json*' -exec \
        sed -i -e "s|$packages/|site-packages/|g" -e "s|$library/|${library##*/}/|g" -e "s|$root/||g" {} +
    if grep -rlF --include='*.json*' -e "$root" -e "${HOME:-$root}/" "$scratch/$name"; then
        echo "error: paths of this machine are left in the files above" >&2
        exit 1
    fi
    python -c "$pack" "$scratch/$name" "$scratch/packed/$name.zip"
}

mkdir "$scratch/packed"
for variant in as-found fixed; do # compile the kernels before recording
    $(trainer "$variant" --max-chunks 1 --warmup-seconds 0)
done
for pair in 01 02 03 04 05; do
    record "$pair-as-found" as-found "" --max-chunks 30
    record "$pair-fixed" fixed "" --max-chunks 1200
done
record detail-as-found as-found "--level standard" --max-chunks 2 --warmup-seconds 0
record detail-fixed fixed "--level standard" --max-chunks 200 --warmup-seconds 0
record long-as-found as-found "--sample-period 0.02" --max-chunks 240
mkdir -p "$out"
rm -f "$out"/*.zip
mv "$scratch"/packed/*.zip "$out"
python -m tests.notebooks.execution notebooks/*.ipynb
du -ch "$out"/*.zip notebooks/*.ipynb
