#!/usr/bin/env bash
# Makes the three locks anew from pyproject.toml. Pins that still fit stay; `scripts/lock.sh --upgrade` takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d) && trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools" && "$tools/bin/pip" install -q uv

# lock FILE [uv's options]: CUDA's packages are left to torch, which asks for its own where it was built with CUDA.
lock() {
  local file=$1
  shift
  "$tools/bin/uv" pip compile -q --no-annotate --custom-compile-command "scripts/lock.sh" --python-version 3.11 "$@" pyproject.toml -o "$file"
  grep -vE '^(cuda|nvidia|triton)\b' "$file" >"$tools/lock"
  cp "$tools/lock" "$file"
}

lock requirements.lock --universal "$@"
lock requirements-dev.lock --universal --fork-strategy fewest --extra dev --constraint requirements.lock "$@"
lock requirements-oldest.lock --python-platform x86_64-manylinux_2_36 --resolution lowest-direct --extra test "$@"
