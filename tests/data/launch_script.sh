# A script as benchmarks have them
DRAFT="x/head-eagle3"
if [ "$EVAL" = true ]; then
    CONFIG="{\"method\": \"eagle3\", \"model\": \"$DRAFT\", \"num_speculative_tokens\": 5}"
fi
FILE='options.yml'
cat > "$FILE" << EOF
speculative_config:
    decoding_type: MTP
    num_nextn_predict_layers: ${DEPTH:-3}
EOF
date "$(date +%s)"
