#!/usr/bin/env bash
# matrix.sh "TORCHES" "PYTHONS": the core of the tests on each, in an environment each under out/matrix.
# What cannot be had is named in a line and left out: a Python that is not here, a PyTorch without a wheel
# for it, or with one for CUDA alone, which brings gigabytes (CUDA=1 takes it all the same). HELD names
# interpreters that have a PyTorch already; theirs stay as they are.
set -uo pipefail
cd "$(dirname "$0")/.."
CORE="tests/test_emitted_module.py tests/test_unchanged.py tests/test_accuracy.py tests/test_library.py tests/rules tests/ir"
NEEDS="pytest hypothesis numpy rich jinja2 ninja setuptools"
INDEX="${TORCH_INDEX-}" # such as --index-url https://download.pytorch.org/whl/cpu
failed=0
mkdir -p out/matrix

# core PYTHON LOG: runs the tests with refold from here and says what came of it
core() {
  local said=passed
  # shellcheck disable=SC2086
  PYTHONPATH="$PWD/src:${3+$PWD/$3}" "$1" -m pytest -q -p no:cacheprovider $CORE >> "$2" 2>&1 || { said=FAILED failed=1; }
  echo "$("$1" -c 'import sys, torch; print(f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}")'): $said ($(tail -1 "$2"))"
}

# has_cuda PYTHON WANTED LOG: whether the wheel that pip would take needs CUDA's; says why there is none
has_cuda() {
  # shellcheck disable=SC2086
  "$1" -m pip install --dry-run --ignore-installed --no-deps --quiet $INDEX --report "$3.json" "$2" > "$3" 2>&1 || return 2
  "$1" - "$3.json" << 'END'
import json, sys
(wheel,) = json.load(open(sys.argv[1]))["install"]
needs = wheel["metadata"].get("requires_dist", [])
sys.exit(not any(n.startswith(("nvidia", "cuda")) for n in needs))
END
  local with=$?
  rm -f "$3.json"
  return $with
}

for version in $2; do
  python=$(command -v "python$version" || true)
  if ! "$python" -c "import sys; assert sys.version.startswith('$version.')" 2> /dev/null; then
    python=$(ls -d "$HOME"/.pyenv/versions/"$version".*/bin/python 2> /dev/null | tail -1)
  fi
  if [ -z "$python" ]; then
    echo "Python $version: not here"
    continue
  fi
  for torch in $1; do
    at="out/matrix/$version-$torch" wanted="torch==$torch"
    [ "$torch" = newest ] && wanted=torch
    has_cuda "$python" "$wanted" "$at.log"
    case $?-${CUDA-0} in
      2-*) echo "Python $version, PyTorch $torch: no wheel ($(tail -1 "$at.log"))" && continue ;;
      0-0) echo "Python $version, PyTorch $torch: only with CUDA, gigabytes (CUDA=1 takes them; TORCH_INDEX names others)" && continue ;;
    esac
    rm -rf "$at" && "$python" -m venv "$at"
    # shellcheck disable=SC2086
    if "$at/bin/pip" install --quiet $INDEX "$wanted" >> "$at.log" 2>&1 && "$at/bin/pip" install --quiet $NEEDS >> "$at.log" 2>&1; then
      core "$at/bin/python" "$at.log"
    else
      echo "Python $version, PyTorch $torch: FAILED to install ($(tail -1 "$at.log"))" && failed=1
    fi
    rm -rf "$at"
  done
done
for python in ${HELD-}; do
  at="out/matrix/held-$(echo "$python" | tr -c 'a-zA-Z0-9\n' _)"
  # shellcheck disable=SC2086
  "$python" -m pip install --quiet --target "$at" $NEEDS > "$at.log" 2>&1
  core "$python" "$at.log" "$at"
  rm -rf "$at"
done
exit $failed
