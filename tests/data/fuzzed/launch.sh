MODEL=Qwen/Qwen3-30B-A3B
trtllm-serve $MODEL \
  --tp_size 2 --ep_size 2 --max_batch_size 64 \
  --extra_llm_api_options options.yaml --port 8000
