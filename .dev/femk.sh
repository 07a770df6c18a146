#!/bin/bash
# Tables of kernel variants on an H200, each part at most a minute. The mountain mesh by ENSEMBLE_MOUNTAIN_MESH.
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD SECONDS_LIMIT=55
for part in sums "sums rcm" elements "elements rcm" values "values rcm" "forms" ; do
  echo "=== variants.py $part"
  timeout 80 python .dev/variants.py $part 2>&1 | tail -n 140
done
for part in element-kernels-device elements-device forms-device; do
  echo "=== $part"
  timeout 90 python -m benchmarks $part --repeats 10 2>&1 | tail -n 60
done
echo "=== tests"
timeout 100 python -m pytest -q tests/apps/fem/test_form_cuda.py tests/linalg/test_elements.py -m cuda 2>&1 | tail -n 15
