#!/usr/bin/env bash
# Packs what was built into one folder that runs on another x86-64 Linux (glibc 2.36 or newer), also
# without network and packages: programs, tests, and the shared libraries that they need.
#
#   bundle.sh --host-cuda FOLDER [PROGRAM ...]
# --host-cuda: libcublasLt and the driver are the host's own, and are left out. PROGRAMs are names in
# build/release/bin; default: tandem, tandem-text, tandem-worker. FOLDER/run PROGRAM ... starts one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ "${1:-}" = --host-cuda ] || die "usage: bundle.sh --host-cuda FOLDER [PROGRAM ...]"
[ $# -ge 2 ] || die "bundle.sh --host-cuda needs a folder"
folder=$2
shift 2
programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=(tandem tandem-text tandem-worker)

[ ! -e "$folder" ] || [ -f "$folder/run" ] || die "$folder exists and is no bundle"
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
for program in "${programs[@]}"; do
  from=$tandem_root/build/release/bin/$program
  [ -x "$from" ] || die "$from is not built"
  strip -o "$folder/bin/$program" "$from"
  # Not those of the C library, which belong to the host's loader, nor CUDA's.
  ldd "$from" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | while read -r library; do
    case $(basename "$library") in
      libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
      libcublas* | libcudart* | libcuda.so* | libnvrtc* | libnvJitLink*) ;;
      *) cp -Lu "$library" "$folder/lib/" ;;
    esac
  done
done
# For tests: their script and the data that they read.
cp "$tandem_root/tests/gpu.sh" "$folder/"
mkdir -p "$folder/tests/golden"
cp -r "$tandem_root/tests/golden/model" "$folder/tests/golden/"
cat >"$folder/run" <<'RUN'
#!/usr/bin/env bash
# run PROGRAM arguments ...
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
shift
export LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
exec "$here/bin/$program" "$@"
RUN
chmod +x "$folder/run"
say "$folder: ${#programs[@]} programs, $(du -sm "$folder" | cut -f1) MiB"
