#!/usr/bin/env bash
# Installs Chromium for the browser tests if possible, and otherwise says why not.
# It never fails: without a browser those tests are skipped with the reason.
set -uo pipefail

skip() {
    echo "browser tests will be skipped: $*"
    exit 0
}

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if path=$(command -v "$name"); then
        echo "browser: $path"
        exit 0
    fi
done

command -v apt-get >/dev/null || skip "no Chromium found, and this is not a Debian-like system"
[ "$(id -u)" = 0 ] || skip "no Chromium found, and only root may install it (apt-get install chromium)"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing Chromium (once)"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update && apt-get install --yes --no-install-recommends chromium; } >"$log" 2>&1 ||
    skip "apt-get could not install Chromium: $(grep -m 1 '^E:' "$log" || tail -n 1 "$log")"
command -v chromium >/dev/null || skip "apt-get installed no chromium program"
