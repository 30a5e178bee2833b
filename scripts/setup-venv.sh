#!/usr/bin/env bash
# Makes the project's own environment: setup-venv.sh PYTHON VENV REQUIREMENTS
# One clear line on what is missing; pip's progress as it is on a terminal, one line a package elsewhere.
set -euo pipefail

python=$1 venv=$2 requirements=$3

fail() {
    echo "error: $*" >&2
    exit 2
}

command -v "$python" >/dev/null || fail "$python not found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version 2>&1) at $python is too old; Python 3.11 or newer is needed: make PYTHON=/path/to/python3"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python has no venv module; on Debian and Ubuntu: apt-get install python3-venv"

# None yet, or one that was cut off in the making. Without pyvenv.cfg its python is the system's own, and pip would
# change that one: asked of the interpreter itself.
is_venv='import sys, pip; sys.exit(sys.prefix == sys.base_prefix)'
if ! "$venv/bin/python" -c "$is_venv" >/dev/null 2>&1; then
    echo "Making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi

echo "Installing $requirements into $venv (once; torch is the large one)"
install=("$venv/bin/python" -m pip install --disable-pip-version-check -r "$requirements")
if [ -t 1 ]; then
    "${install[@]}"
else
    # grep finds nothing (1) when all is there already
    "${install[@]}" --progress-bar off |
        { grep --line-buffered -E '^ *(Collecting|Processing|Downloading .*(MB|GB)|Installing|Successfully)' || [ $? = 1 ]; } |
        cut -c 1-160
fi

# Where there is an NVIDIA driver the bundled trainer takes CUDA, for which Numba needs its compilers. pip chooses the
# release that goes with the torch just installed; without it the trainer still runs, on the host device, and says so.
if command -v nvidia-smi >/dev/null; then
    numba_cuda=$(sed -n 's/^numba-cuda==/==/p' requirements-dev.txt)
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "numba-cuda[cu13]$numba_cuda" ||
        echo "warning: numba-cuda could not be installed: the bundled trainer will run on the host device (CPU)" >&2
fi
