"""Read LFM2: layers with a short convolution, and the width of dense blocks."""

from specmodel.core.models.hf.reader import Fields, Layers, Reader

_DEFAULT_MULTIPLE = 256


def short_convolution(reader: Reader) -> Fields:
    """Return the fields of a short convolution, which is as wide as the model."""
    hidden_size = reader.whole("hidden_size")
    for key in ("conv_dim", "conv_dim_out"):
        expected = f"hidden_size = {hidden_size}, as others are not known here"
        reader.only(key, (hidden_size,), expected)
    kernel = reader.whole("conv_L_cache")
    return {"kind": "short_convolution", "num_channels": hidden_size, "conv_kernel": kernel}


def lfm2_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the dense block of each layer, as wide as the key, or two thirds of it rounded up."""
    size = reader.whole("intermediate_size")
    reader.pass_over("block_ffn_dim_multiplier", "block_multiple_of")
    if reader.flag("block_auto_adjust_ff_dim", True):
        factor = reader.number("block_ffn_dim_multiplier", most=size) or 1
        multiple = reader.whole("block_multiple_of", _DEFAULT_MULTIPLE)
        size = -(-int(factor * int(2 * size / 3)) // multiple) * multiple
    return [{"kind": "dense", "is_gated": True, "ffn_size": size}] * num_layers
