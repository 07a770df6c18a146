#!/bin/bash
# Tables of kernel variants on an H200, each part at most a minute. The mountain mesh by ENSEMBLE_MOUNTAIN_MESH.
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD SECONDS_LIMIT=50
for part in bandwidth values "elements 0" "elements 1" matrices sums forms; do
  echo "=== variants.py $part"
  timeout 90 python .dev/variants.py $part 2>&1 | tail -n 140
done
echo "=== forms-device"
timeout 90 python -m benchmarks forms-device --repeats 10 2>&1 | tail -n 60
echo "=== tests"
timeout 200 python -m pytest -q -x tests/apps/fem/test_form_cuda.py -m cuda 2>&1 | tail -n 15
