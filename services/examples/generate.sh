#!/usr/bin/env bash
# A client in shell, with grpcurl: is the server serving, which models has it, one answer. Server
# reflection is on, so grpcurl needs no .proto files.
#
#   generate.sh SERVER PROMPT
set -euo pipefail
[ $# = 2 ] || { echo "usage: generate.sh SERVER PROMPT" >&2; exit 2; }
server=$1
prompt=$2

grpcurl -plaintext -d '{"service": "tandem.v1.Generation"}' "$server" grpc.health.v1.Health/Check
grpcurl -plaintext "$server" tandem.v1.Generation/ListModels

# JSON needs quotes, backslashes and control characters escaped.
quoted=$(printf '%s' "$prompt" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))')
grpcurl -plaintext -max-time 60 -d @ "$server" tandem.v1.Generation/Generate <<REQUEST
{"chat": {"messages": [{"role": "user", "content": $quoted}]}, "max_tokens": 64, "sampling": {"temperature": 0}}
REQUEST
