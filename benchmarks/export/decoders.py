"""Decoders with key-value caches, as skeletons of examples/zoo/deployed.

    python benchmarks/export/decoders.py [NETWORK ...]

GPT-2, Llama, Qwen2 and T5 of Hugging Face transformers with random weights: two layers, 512 channels, 8 heads (Llama and Qwen2:
2 heads of keys and values), 4096 tokens. Batch, new tokens and cache have symbolic sizes.

| suffix | exporter |
|---|---|
| script | torch.onnx.export with TorchScript; that of T5 with dynamo fails in torch 2.13 |
| dynamo | torch.onnx.export with dynamo |
| genai | the model builder of onnxruntime-genai, if it is installed: GroupQueryAttention |
| int4 | the same, with products as MatMulNBits; GPT-2's products are Gemms, which the quantiser leaves as they are |

Needs torch, transformers, onnxscript and onnxruntime; written with torch 2.13, transformers 5.23, onnxruntime 1.32.0,
onnxruntime-genai 0.18.0.
"""

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import skeleton
import torch
import transformers
import zoo
from onnx import TensorProto
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

VOCABULARY, WIDTH, LAYERS, HEADS, KEY_HEADS = 4096, 512, 2, 8, 2
GROUPED_QUERIES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 1408,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": 2048,
}
"""The configuration that Llama and Qwen2 have in common."""


class Cached(torch.nn.Module):
    """A causal language model on tensors: tokens, mask, keys and values of all layers -> logits, keys and values."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return (result.logits, *_tensors(result.past_key_values))


class CachedT5(torch.nn.Module):
    """T5's decoder behind its encoder: only the cache of the decoder's own keys grows, the encoder's is read."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.decoder, self.lm_head = model.decoder, model.lm_head

    def forward(self, input_ids, encoder_attention_mask, encoder_hidden_states, past, encoder_past):
        own, cross = DynamicCache(), DynamicCache()
        for layer in range(len(past) // 2):
            own.update(past[2 * layer], past[2 * layer + 1], layer)
            cross.update(encoder_past[2 * layer], encoder_past[2 * layer + 1], layer)
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(len(past) // 2), True)
        result = self.decoder(
            input_ids=input_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return (self.lm_head(result.last_hidden_state), *_tensors(result.past_key_values.self_attention_cache))


def _tensors(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=1024, attn_implementation="eager"
    )
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED_QUERIES, attn_implementation="eager"))


def qwen2():
    config = transformers.Qwen2Config(**GROUPED_QUERIES, attn_implementation="sdpa", tie_word_embeddings=True)
    return transformers.Qwen2ForCausalLM(config)


def t5():
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=64,
        d_ff=1024,
        num_layers=LAYERS,
        num_heads=HEADS,
        attn_implementation="sdpa",
    )
    return transformers.T5ForConditionalGeneration(config)


def export(name: str, path: Path, dynamo: bool) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    heads = KEY_HEADS if name in ("llama", "qwen2") else HEADS
    batch, new, past = 2, 3, 5
    caches = [torch.randn(batch, heads, past, WIDTH // HEADS) for _ in range(2 * LAYERS)]
    ids = torch.randint(0, VOCABULARY, (batch, new))
    kinds = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
    pasts = [f"past_key_values.{kind}" for kind in kinds]
    batch_, new_, past_, total_, source_ = "batch", "sequence", "past", "total", "source"
    if name == "t5":
        source = 7
        cross = [torch.randn(batch, heads, source, WIDTH // HEADS) for _ in range(2 * LAYERS)]
        arguments = (
            ids,
            torch.ones(batch, source, dtype=torch.int64),
            torch.randn(batch, source, WIDTH),
            caches,
            cross,
        )
        names = ["input_ids", "encoder_attention_mask", "encoder_hidden_states", *pasts]
        names += [f"encoder_{past}" for past in pasts]
        module = CachedT5(network)
        shapes = [{0: batch_, 1: new_}, {0: batch_, 1: source_}, {0: batch_, 1: source_}]
        nested = [[{0: batch_, 2: past_}] * len(caches), [{0: batch_, 2: source_}] * len(cross)]
    else:
        positions = torch.arange(past, past + new).expand(batch, new)
        arguments = (ids, torch.ones(batch, past + new, dtype=torch.int64), positions, caches)
        names = ["input_ids", "attention_mask", "position_ids", *pasts]
        module = Cached(network)
        shapes = [{0: batch_, 1: new_}, {0: batch_, 1: total_}, {0: batch_, 1: new_}]
        nested = [[{0: batch_, 2: past_}] * len(caches)]
    outputs = ["logits", *(f"present.{kind}" for kind in kinds)]
    if dynamo:
        torch.onnx.export(
            module,
            arguments,
            path,
            input_names=names,
            output_names=outputs,
            dynamic_shapes=(*shapes, *nested),
            opset_version=18,
            external_data=False,
            dynamo=True,
        )
    else:
        axes = dict(zip(names, [*shapes, *(one for many in nested for one in many)], strict=True))
        axes["logits"] = {0: batch_, 1: new_}
        axes |= {each: {0: batch_, 2: total_} for each in outputs[1:]}
        with torch.no_grad():
            torch.onnx.export(
                module,
                arguments,
                path,
                input_names=names,
                output_names=outputs,
                dynamic_axes=axes,
                opset_version=17,
                dynamo=False,
            )


def quantized(source: Path, path: Path) -> None:
    """The same network with matrix products of 4-bit integers."""
    quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


def built(name: str, precision: str, folder: Path) -> Path:
    """The network as the model builder of onnxruntime-genai writes it."""
    builder = importlib.util.find_spec("onnxruntime_genai").submodule_search_locations[0]
    source = folder / f"{name}_source"
    torch.manual_seed(0)
    NETWORKS[name]().save_pretrained(source)
    command = [sys.executable, f"{builder}/models/builder.py", "-i", str(source), "-o", str(folder / "built")]
    options = ["-p", precision, "-e", "cpu", "-c", str(folder)]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return folder / "built" / "model.onnx"


def write(path: Path, name: str) -> None:
    """Write the skeleton of a network: floats and bytes of more than 1 KiB are emptied."""
    model = onnx.load(path)
    skeleton.remove_texts(model)
    for tensor in zoo.constants(model.graph):
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.UINT8) and np.prod(tensor.dims) > 1024:
            skeleton.empty(tensor)
    skeleton.DEPLOYED.mkdir(exist_ok=True)
    target = skeleton.DEPLOYED / f"{name}.onnx"
    onnx.save(model, target)
    print(target.name, target.stat().st_size, flush=True)


def main(*networks: str) -> None:
    """Write the skeletons of all networks that can be exported here, or of some."""
    logging.disable(logging.INFO)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for network in networks or NETWORKS:
            for way in ("script",) if network == "t5" else ("script", "dynamo"):
                path = folder / f"{network}_{way}.onnx"
                export(network, path, way == "dynamo")
                write(path, path.stem)
                if network != "gpt2":
                    integers = path.with_stem(f"{path.stem}_int4")
                    quantized(path, integers)
                    write(integers, integers.stem)
            if network == "qwen2" and importlib.util.find_spec("onnxruntime_genai") is not None:
                for precision, suffix in (("fp32", ""), ("int4", "_int4")):
                    write(built(network, precision, folder), f"{network}_genai{suffix}")


NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {"gpt2": gpt2, "llama": llama, "qwen2": qwen2, "t5": t5}

if __name__ == "__main__":
    main(*sys.argv[1:])
