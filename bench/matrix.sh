#!/usr/bin/env bash
# matrix.sh "TORCHES" "PYTHONS": the core of the tests on each, in an environment each under out/matrix.
# A Python that is not here, or for which there is no such PyTorch, is named and left out.
set -uo pipefail
cd "$(dirname "$0")/.."
CORE="tests/test_emitted_module.py tests/test_unchanged.py tests/test_accuracy.py tests/test_library.py tests/rules tests/ir"
INDEX="${TORCH_INDEX-}" # such as --index-url https://download.pytorch.org/whl/cpu
failed=0
mkdir -p out/matrix
for version in $2; do
  python=$(command -v "python$version" || ls -d "$HOME"/.pyenv/versions/"$version".*/bin/python 2>/dev/null | tail -1)
  if [ -z "$python" ] || ! "$python" -c "import sys; assert sys.version.startswith('$version.')" 2>/dev/null; then
    echo "Python $version: not here"
    continue
  fi
  for torch in $1; do
    at="out/matrix/$version-$torch" wanted="torch==$torch"
    [ "$torch" = newest ] && wanted=torch
    rm -rf "$at" && "$python" -m venv "$at"
    # shellcheck disable=SC2086
    if ! "$at/bin/pip" install --quiet $INDEX "$wanted" > "$at.log" 2>&1; then
      echo "Python $version, PyTorch $torch: no wheel ($(tail -1 "$at.log"))"
      continue
    fi
    "$at/bin/pip" install --quiet pytest hypothesis numpy rich jinja2 ninja setuptools >> "$at.log" 2>&1
    "$at/bin/pip" install --quiet --no-deps -e . >> "$at.log" 2>&1
    # shellcheck disable=SC2086
    if "$at/bin/python" -m pytest -q -p no:cacheprovider $CORE >> "$at.log" 2>&1; then said=passed; else said=FAILED failed=1; fi
    echo "Python $version, PyTorch $("$at/bin/python" -c 'import torch; print(torch.__version__)'): $said ($(tail -1 "$at.log"))"
    rm -rf "$at"
  done
done
exit $failed
