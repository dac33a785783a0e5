#!/usr/bin/env bash
# Tests and benches on a machine with a GPU. Installs and builds nothing: runs what build/release/bin
# has, or, from a bundle (deploy/local/bundle.sh), what the bundle has.
#
#   tests/gpu.sh                  kernel tests, model tests, bits, call trace
#   tests/gpu.sh --list           the programs that they need, for bundle.sh
#   tests/gpu.sh --sanitize       a subset under compute-sanitizer: memcheck racecheck initcheck synccheck
#   tests/gpu.sh --bench OUT.json kernel_bench and decode_bench
# Environment: TANDEM_TEST_MODEL (the default model's file; without it its tests skip),
# TANDEM_BENCH_MODELS (default: random:smollm2-135m random:qwen2-1.5b random:llama3-8b).
# The exit status is 0 iff everything passed.
set -euo pipefail

tests=(cuda_test ops_test ops_layer_test bits_test engine_cuda_calls_test engine_model_golden_test
  engine_model_bits_test)
benches=(kernel_bench decode_bench)
# Every kernel at small shapes; the choice of algorithms alone would take minutes at large ones.
# Without the planted split-K: cuBLASLt's own kernels for it are reported by racecheck and initcheck.
sanitized='CudaSmallModel.*:PlantedProducts.With*:ProbeTest.OneBit*:CudaRowsTest.*:RandomWeightTest.*'
sanitized+=':CudaCandidatesTest.TheRowMaximum*:CudaCandidatesTest.OfRows*:CudaCandidatesTest.ADraw*'
sanitized+=':CudaAttentionTest.B085*:CudaAttentionTest.TheContextLength*'
sanitized_ops='*CheckFiniteTest.*/cuda'

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -x "$here/run" ]; then
  cd "$here"
  programs=$here/bin
  export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
else
  cd "$here/.."
  programs=$PWD/build/release/bin
fi
die() {
  echo "gpu.sh: $*" >&2
  exit 1
}
program() { [ -x "$programs/$1" ] || die "$programs/$1 is not there"; }

run_tests() {
  local failed=0 name start
  for name in "${tests[@]}"; do
    program "$name"
    start=$SECONDS
    if "$programs/$name" --gtest_brief=1; then
      echo "gpu.sh: $name passed, $((SECONDS - start)) s"
    else
      echo "gpu.sh: $name FAILED, $((SECONDS - start)) s"
      failed=$((failed + 1))
    fi
  done
  echo "gpu.sh: $failed of ${#tests[@]} programs failed"
  [ "$failed" = 0 ]
}

under() {  # TOOL PROGRAM FILTER
  timeout 150 "$sanitizer" --tool "$1" --error-exitcode 9 --print-limit 20 \
    "$programs/$2" --gtest_brief=1 --gtest_filter="$3"
}
sanitize() {
  local sanitizer tool filter failed=0 start
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [ -x "$sanitizer" ] || die "compute-sanitizer was not found"
  program cuda_test
  program ops_test
  for tool in memcheck racecheck initcheck synccheck; do
    start=$SECONDS
    # With CudaSmallModel, which tries many algorithms for its products, racecheck took more than 90 s.
    filter=$sanitized
    [ "$tool" != racecheck ] || filter=${sanitized#CudaSmallModel.\*:}
    if under "$tool" cuda_test "$filter" && under "$tool" ops_test "$sanitized_ops"; then
      echo "gpu.sh: $tool reports nothing, $((SECONDS - start)) s"
    else
      echo "gpu.sh: $tool FAILED, $((SECONDS - start)) s"
      failed=$((failed + 1))
    fi
  done
  [ "$failed" = 0 ]
}

bench() {
  local out=$1 model lines
  for name in "${benches[@]}"; do program "$name"; done
  lines=$(mktemp)
  "$programs/kernel_bench" | tee -a "$lines"
  for model in ${TANDEM_BENCH_MODELS:-random:smollm2-135m random:qwen2-1.5b random:llama3-8b}; do
    "$programs/decode_bench" "$model" --batch 1 8 64 256 | tee -a "$lines"
  done
  { echo '['; sed '$!s/$/,/' "$lines"; echo ']'; } >"$out"
  rm -f "$lines"
}

[ "${1:-}" = --list ] || compgen -G '/dev/nvidia[0-9]*' >/dev/null || die "no GPU here: there is no /dev/nvidia0"
case ${1:-} in
  '') run_tests ;;
  --list) echo "${tests[@]}" "${benches[@]}" ;;
  --sanitize) sanitize ;;
  --bench) [ $# = 2 ] || die "--bench needs a file"; bench "$2" ;;
  *) die "unknown argument '$1'; see the top of this file" ;;
esac
