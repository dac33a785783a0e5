#!/usr/bin/env bash
# Installs, builds and runs every test that this machine can run, and says what it left out and why.
#
#   tests/run.sh                 everything: release tests, then ASan+UBSan, then TSan
#   tests/run.sh release ...     only the named parts: release asan tsan
# Environment: TANDEM_JOBS (build and test jobs), TANDEM_CACHE, TANDEM_TEST_MODEL (a model file instead of the default),
# TANDEM_TEST_PYTHON (an interpreter that has tests/python/requirements.txt, instead of one made in the cache),
# TANDEM_EXHAUSTIVE (set: proofs over every float, 10,000,000 draws a set, whole vocabularies: many minutes, name the tests).
# The last line reads "N passed, N failed, N skipped", counted over all parts; the exit status is 0 iff none failed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../deploy/local/common.sh"

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(release asan tsan)
for part in "${parts[@]}"; do
  case $part in release | asan | tsan) ;; *) die "unknown part '$part': release, asan or tsan" ;; esac
done

install_packages "${tandem_build_packages[@]}" "${tandem_model_packages[@]}" "${tandem_test_packages[@]}"
say_cuda
if [ -z "${TANDEM_TEST_MODEL:-}" ]; then
  fetch_model
  export TANDEM_TEST_MODEL=$tandem_model
fi
if [ -z "${TANDEM_TEST_PYTHON:-}" ]; then
  fetch_python
  export TANDEM_TEST_PYTHON=$tandem_python
fi
jobs=${TANDEM_JOBS:-$(nproc)}
[ "$jobs" -le 2 ] || jobs=2  # tests use threads of their own

passed=0 failed=0 skipped=0 started=$SECONDS
run_part() {  # PRESET ctest arguments ...
  local preset=$1; shift
  local dir=$tandem_root/build/$preset log=$tandem_root/build/$preset/test.log
  say "testing $preset"
  local start=$SECONDS status=0
  ctest --test-dir "$dir" -j "$jobs" --output-on-failure --no-tests=error "$@" >"$log" 2>&1 || status=$?
  local cases bad skip
  # Passed cases are counted, not binaries.
  bad=$(grep -cE '^\s*[0-9]+/[0-9]+ Test +#.*(\*\*\*Failed|\*\*\*Timeout|\*\*\*Exception|Subprocess aborted|SEGFAULT|Not Run)' "$log" || true)
  skip=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$dir/Testing/Temporary/LastTest.log" | awk '{n += $1} END {print n + 0}')
  cases=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$dir/Testing/Temporary/LastTest.log" | awk '{n += $1} END {print n + 0}')
  passed=$((passed + cases)) failed=$((failed + bad)) skipped=$((skipped + skip))
  if [ "$status" != 0 ]; then
    [ "$bad" -gt 0 ] || failed=$((failed + 1))
    grep -vE '^\s*(Start|[0-9]+/[0-9]+ Test +#.* Passed)' "$log" | tail -n 200
  fi
  grep -hA1 ': Skipped$' "$dir/Testing/Temporary/LastTest.log" | grep -v '^--' >&2 || true  # where, and why
  say "$preset: $cases cases passed, $bad tests failed, $skip skipped, $((SECONDS - start)) s"
}

for part in "${parts[@]}"; do
  case $part in
    release)
      build release all -- -DTANDEM_TESTS=ON
      run_part release
      ;;
    asan)
      build asan quick_tests -- -DTANDEM_TESTS=ON
      # Tests ask for more memory than there is, and expect to be told so.
      LSAN_OPTIONS="suppressions=$tandem_root/tests/support/lsan.supp print_suppressions=0" ASAN_OPTIONS=allocator_may_return_null=1 \
        UBSAN_OPTIONS=print_stacktrace=1 run_part asan -LE slow
      ;;
    tsan)
      build tsan thread_tests -- -DTANDEM_TESTS=ON
      # A stack that is no longer in the history matches no suppression: keep the longest there is.
      TSAN_OPTIONS="suppressions=$tandem_root/tests/support/tsan.supp ignore_noninstrumented_modules=1 history_size=7" \
        run_part tsan -L threads
      ;;
  esac
done

say "all parts took $((SECONDS - started)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
