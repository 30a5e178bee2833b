#!/usr/bin/env bash
# Creates the project's environment: setup-venv.sh PYTHON VENV REQUIREMENTS
# It prints one clear line about what is missing. Without a terminal, pip's output is reduced to one line per package.
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

# The environment may be missing or incomplete. Without pyvenv.cfg its python is the system's own, and pip would change the system;
# so the interpreter itself must confirm that it is a virtual environment.
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
    # grep exits with 1 if everything is already installed
    "${install[@]}" --progress-bar off |
        { grep --line-buffered -E '^ *(Collecting|Processing|Downloading .*(MB|GB)|Installing|Successfully)' || [ $? = 1 ]; } |
        cut -c 1-160
fi

# With an NVIDIA driver the bundled trainer uses CUDA, for which Numba needs a compiler. pip chooses the release that fits the installed
# torch. Without the compiler the trainer runs on the host device and says so.
if command -v nvidia-smi >/dev/null; then
    numba_cuda=$(sed -n 's/^numba-cuda==/==/p' requirements-dev.txt)
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "numba-cuda[cu13]$numba_cuda" ||
        echo "warning: numba-cuda could not be installed: the bundled trainer will run on the host device (CPU)" >&2
fi
