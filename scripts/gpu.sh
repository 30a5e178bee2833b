#!/usr/bin/env bash
# On a machine with a CUDA device: the comparison at preset gpu, the GPU benchmarks and the GPU tests, in 7 minutes.
#
#     gpu.sh PYTHON [options of compare]
#
# It uses that Python's own packages and needs no network. Wheels in $WHEELS (default wheels/; py-spy, for example) are unpacked for
# this run only. It writes to $OUT (default reports/gpu/): environment.txt, compare.html, .md and .json, runs.tar.gz (the recorded runs,
# also in reports/runs/TIME-gpu), bench_gpu.json, tests.txt and bench_gpu_sweep.json, each as soon as its stage has ended. All stages
# run even if one fails; the exit code is then 1.
set -euo pipefail

# Time limits of the stages in seconds, 420 together. What is worth most comes first: a machine may be taken away before the last.
compare_limit=250 benchmark_limit=70 tests_limit=50 sweep_limit=50
grace=20 # of these, from SIGINT on: compare reports the complete pairs, the others write what they have

python=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${OUT:-reports/gpu} wheels=${WHEELS:-wheels} failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "error: $*" >&2
    exit 2
}

# Runs a stage: stage NAME LIMIT COMMAND... Fails where the command does.
stage() {
    local name=$1 limit=$2 code=0
    shift 2
    echo "== $name (at most $limit s)" >&2
    timeout --foreground --signal=INT --kill-after="$grace" "$((limit - grace))" "$@" || code=$?
    case $code in
        0) return 0 ;;
        124 | 137) echo "$name: stopped at its limit" >&2 ;;
        *) echo "$name: exit code $code" >&2 ;;
    esac
    return 1
}

if compgen -G "$wheels/*.whl" >/dev/null; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$scratch/site" "$wheels"/*.whl ||
        fail "the wheels in $wheels cannot be installed"
    export PYTHONPATH="$scratch/site${PYTHONPATH:+:$PYTHONPATH}" PATH="$scratch/site/bin:$PATH"
fi
# Numba looks for libnvvm in CUDA_HOME, which may be unset although a CUDA toolkit is on the PATH.
if [ -z "${CUDA_HOME:-}" ] && nvcc=$(command -v nvcc); then
    CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    export CUDA_HOME
fi

probe='from reference_trainer.devices import cuda_probe; print(cuda_probe.unavailable())'
# Warnings of libraries are on standard error, and no reason.
no_gpu=$("$python" -c "$probe" 2>"$scratch/errors") || fail "$python cannot run the trainer: $(tail -n 1 "$scratch/errors")"
[ -z "$no_gpu" ] || fail "no CUDA device for $python: $no_gpu"
missing=$("$python" scripts/gpu_packages.py 2>"$scratch/errors") || fail "$python cannot run the comparison: $(tail -n 1 "$scratch/errors")"
[ -z "$missing" ] || fail "$python cannot run the comparison: $missing"
"$python" -m profiler compare --help >/dev/null 2>"$scratch/errors" ||
    fail "$python cannot run the comparison: $(tail -n 1 "$scratch/errors")"

mkdir -p "$out"
{
    date -u
    uname -srm
    echo "$(nproc) CPU cores"
    echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)"
    nvidia-smi || echo "nvidia-smi not found"
    "$python" -VV
    "$python" -m pip list --format=freeze --disable-pip-version-check || true
} >"$out/environment.txt" 2>&1

runs=reports/runs/$(date -u +%Y%m%d-%H%M%S)-gpu
stage compare "$compare_limit" \
    "$python" -m profiler compare --device cuda --preset gpu --pairs 3 --anyway --out "$runs" "$@" || failed=1
for report in compare.html compare.md compare.json; do
    [ ! -e "$runs/$report" ] || cp "$runs/$report" "$out/"
done
[ ! -d "$runs" ] || tar -czf "$out/runs.tar.gz" -C "$(dirname "$runs")" "$(basename "$runs")"

stage benchmark "$benchmark_limit" \
    "$python" tests/benchmarks/bench_gpu.py --preset gpu --seconds 2 --out "$out/bench_gpu.json" || failed=1

if "$python" -c 'import pytest, pytest_timeout' 2>/dev/null; then
    # The tests of `check` record programs again and again: they come last, and may be cut off.
    tests=(tests/gpu/test_[!c]*.py tests/reference_trainer/lm/test_equivalence.py tests/gpu/test_check.py)
    stage tests "$tests_limit" "$python" -m pytest "${tests[@]}" -m gpu -q -p no:cacheprovider |
        tee "$out/tests.txt" || failed=1
else
    echo "not run: $python has no pytest with pytest-timeout" | tee "$out/tests.txt"
fi

stage sweep "$sweep_limit" \
    "$python" tests/benchmarks/bench_gpu_sweep.py --pairs 3 --seconds 25 --out "$out/bench_gpu_sweep.json" || failed=1

echo "results: $out"
exit "$failed"
