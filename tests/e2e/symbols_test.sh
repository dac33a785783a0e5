#!/usr/bin/env bash
# symbols_test.sh BINARY: the program shows no protobuf, abseil or gRPC symbol to the dynamic linker. If it did, the older
# protobuf inside Debian's sentencepiece library could take the place of ours, and short tests would still pass.
set -euo pipefail
binary=$1
leaked=$(nm -D --defined-only "$binary" | c++filt | grep -E ' (google::protobuf|absl::|grpc::|grpc_)' || true)
bound=$(nm -D --undefined-only "$binary" | c++filt | grep -E ' U (google::protobuf|absl::|grpc::|grpc_)' || true)
if [ -n "$leaked$bound" ]; then
  echo "FAIL: $binary shares symbols with its libraries:"
  printf '%s\n' "$leaked" "$bound" | head -n 20
  exit 1
fi
# The check itself must be able to see symbols: the library that makes it necessary has them.
library=$(ldd "$binary" | awk '/libsentencepiece.so/ {print $3}')
if [ -n "$library" ]; then
  [ "$(nm -D --defined-only "$library" | c++filt | grep -c google::protobuf)" -gt 0 ] ||
    { echo "FAIL: nothing to see in $library"; exit 1; }
fi
echo "[  PASSED  ] 1 test."
