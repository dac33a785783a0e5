#!/usr/bin/env bash
# From a bare machine to an answer: installs what is missing, builds, fetches the default model, starts both tiers, asks one
# question. Run again it is quick: nothing is done twice. The tiers stay up; `deploy/local/quickstart.sh stop` ends them.
#
#   quickstart.sh            everything
#   quickstart.sh stop       stop both tiers
#   quickstart.sh status     are they up?
# Environment: TANDEM_PORT (default 7700, the text tier; the worker and HTTP take the next two), TANDEM_JOBS (build jobs), TANDEM_CACHE.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

port=${TANDEM_PORT:-7700}
case $port in '' | *[!0-9]*) die "TANDEM_PORT is '$port': it must be a number from 1 to 65533" ;; esac
[ "$port" -ge 1 ] && [ "$port" -le 65533 ] || die "TANDEM_PORT is $port: it must be 1 to 65533"
run=$tandem_cache/run
bin=$tandem_root/build/release/bin

alive() { [ -f "$run/$1.pid" ] && [ "$(cat "/proc/$(cat "$run/$1.pid")/comm" 2>/dev/null)" = "tandem-$1" ]; }

stop_tiers() {
  local name pid
  for name in text worker; do
    if alive "$name"; then
      pid=$(cat "$run/$name.pid")
      kill "$pid"
      for _ in $(seq 100); do alive "$name" || break; sleep 0.1; done
      alive "$name" && kill -9 "$pid"
      say "stopped tandem-$name"
    fi
    rm -f "$run/$name.pid"
  done
}

start_tier() {  # NAME arguments ...
  local name=$1; shift
  alive "$name" && return 0
  mkdir -p "$run"
  "$bin/tandem-$name" "$@" >"$run/$name.log" 2>&1 </dev/null &
  echo $! >"$run/$name.pid"
  disown
}

wait_serving() {  # NAME address
  for _ in $(seq 600); do
    "$bin/tandem" health "$2" >/dev/null 2>&1 && return 0
    alive "$1" || { tail -n 20 "$run/$1.log" >&2; die "tandem-$1 ended (its log is above and in $run/$1.log)"; }
    sleep 0.1
  done
  tail -n 20 "$run/$1.log" >&2
  die "tandem-$1 is not serving after 60 s (its log is above and in $run/$1.log)"
}

case ${1:-start} in
  start) ;;
  stop) stop_tiers; exit 0 ;;
  status) for name in worker text; do alive "$name" && echo "tandem-$name runs" || echo "tandem-$name does not run"; done; exit 0 ;;
  *) die "unknown argument '$1': start, stop or status" ;;
esac

install_packages "${tandem_build_packages[@]}" "${tandem_model_packages[@]}"
say_cuda
build release tandem tandem-text tandem-worker -- -DTANDEM_TESTS=OFF
fetch_model

say "starting both tiers (logs in $run)"
start_tier worker --model "$tandem_model" --listen "127.0.0.1:$((port + 1))"
wait_serving worker "127.0.0.1:$((port + 1))"
start_tier text --worker "127.0.0.1:$((port + 1))" --listen "127.0.0.1:$port" --http-listen "127.0.0.1:$((port + 2))"
wait_serving text "127.0.0.1:$port"

question="What is the capital of France?"
echo "> $question"
"$bin/tandem" generate --server "127.0.0.1:$port" --chat --temperature 0 --max-tokens 64 -v "$question"
cat <<EOF

Tandem is up on 127.0.0.1:$port.
  try it    http://127.0.0.1:$((port + 2))/ in a browser
  chat      $bin/tandem chat --server 127.0.0.1:$port
  the API   gRPC, tandem.v1.Generation (proto/tandem/v1/generation.proto), server reflection is on:
            $bin/tandem generate --server 127.0.0.1:$port --help
            HTTP as OpenAI's: http://127.0.0.1:$((port + 2))/v1
  stop      deploy/local/quickstart.sh stop
EOF
