#!/usr/bin/env python3
"""Makes the golden files of this folder from Hugging Face transformers in fp32 on the CPU.

  python3 -m venv V && V/bin/pip install torch transformers gguf accelerate psutil
  V/bin/python make_goldens.py --model DIR/SmolLM2-135M-Instruct.Q4_1.gguf \\
      [--only default|tiny|rope]

Files
  default_model.json  10 prompts through the default model, 64 greedy steps each; end tokens do not
                      stop a run.
  tiny_llama.gguf     a seeded random llama (F32, untied output, head_dim other than hidden/heads,
                      large epsilon).
  tiny_llama.json     logits of every position of a few prompts through it.
  rope.json           inverse frequencies and attention factor of each RoPE scaling kind.

Arrays are strings: base64 of little-endian float32, or int32 where they are ids.

In default_model.json a prompt's arrays have one line per step: token [64] the greedy token; gap [64]
first minus second logit; log_sum_exp [64]; min, max [64] of the row; top_ids, top_logits [64, 10] in
descending order; fixed_logits [64, 64] at the ids of "fixed_ids". Step 0 is the row of the prompt's
last token; step i has seen the first i golden tokens.
"""

import argparse
import base64
import hashlib
import importlib.metadata
import json
import pathlib
import platform

import gguf
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NUM_STEPS = 64
LONG_PROMPT_TOKENS = 1500

CODE = '''def binary_search(values, wanted):
    """Returns the index of wanted in the ascending list values, or -1."""
    low, high = 0, len(values) - 1
    while low <= high:
'''


def prompts():
    """(name, plain text) or (name, chat messages)."""
    user = lambda text: {"role": "user", "content": text}
    return [
        ("plain_english", "The history of the steam engine begins with"),
        ("plain_short", "Water"),
        ("plain_chinese", "北京是中国的首都，这座城市"),
        ("plain_code", CODE),
        ("chat_capital", [user("What is the capital of France?")]),
        ("chat_chinese", [user("请用中文介绍一下长城。")]),
        ("chat_emoji", [user("What do these mean? 🚀🌍👩‍👩‍👧 ❤️ Answer with one line for each.")]),
        ("chat_turns", [
            {"role": "system", "content": "You answer like a pirate."},
            user("Who are you?"),
            {"role": "assistant", "content": "Arr, I be Captain Byte, scourge of the seven caches!"},
            user("Write a C++ function that adds two integers."),
        ]),
        ("chat_empty_system", [{"role": "system", "content": ""}, user("Name three colours.")]),
        ("plain_long", (ROOT / "LICENSE").read_text()),
    ]


def f32(values):
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()


def i32(values):
    return base64.b64encode(np.ascontiguousarray(values, dtype="<i4").tobytes()).decode()


def made_by():
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "gguf": importlib.metadata.version("gguf"),
        "python": platform.python_version(),
        "dtype": "float32",
    }


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def dump(name, data):
    path = HERE / name
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


@torch.no_grad()
def greedy(model, ids):
    """Logits rows [NUM_STEPS, vocab] (fp32) of the greedy continuation, and its tokens."""
    rows, tokens, cache = [], [], None
    step_ids = ids
    for _ in range(NUM_STEPS):
        out = model(input_ids=torch.tensor([step_ids]), past_key_values=cache, use_cache=True,
                    logits_to_keep=1)
        cache = out.past_key_values
        row = out.logits[0, -1].numpy()
        rows.append(row)
        tokens.append(int(row.argmax()))
        step_ids = tokens[-1:]
    return np.stack(rows), tokens


def make_default(model_path):
    path = pathlib.Path(model_path)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                 dtype=torch.float32)
    model.eval()
    assert model.dtype == torch.float32 and model.config._attn_implementation in ("sdpa", "eager")
    vocab_size = model.config.vocab_size
    fixed_ids = [i * (vocab_size // 64) + i * i * 31 % (vocab_size // 64) for i in range(64)]
    entries = []
    for name, prompt in prompts():
        chat = not isinstance(prompt, str)
        text = prompt
        if chat:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if name == "plain_long":
            assert len(ids) >= LONG_PROMPT_TOKENS, len(ids)
            ids = ids[:LONG_PROMPT_TOKENS]
            text = tokenizer.decode(ids)
        rows, tokens = greedy(model, ids)
        order = np.argsort(-rows, axis=1, kind="stable")[:, :10]
        top = np.take_along_axis(rows, order, axis=1)
        gap = top[:, 0] - top[:, 1]
        wide = rows.astype(np.float64)
        log_sum_exp = wide.max(1) + np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1))
        entry = {"name": name}
        entry.update({"messages": prompt} if chat else {"text": text})
        entry.update({
            "continuation": tokenizer.decode(tokens),
            "smallest_gap": float(gap.min()),
            "prompt_ids": i32(ids),
            "token": i32(tokens),
            "gap": f32(gap),
            "log_sum_exp": f32(log_sum_exp),
            "min": f32(rows.min(1)),
            "max": f32(rows.max(1)),
            "top_ids": i32(order),
            "top_logits": f32(top),
            "fixed_logits": f32(rows[:, fixed_ids]),
        })
        entries.append(entry)
        print(f"{name}: {len(ids)} prompt tokens, smallest gap {gap.min():.4f}: "
              f"{entry['continuation'][:60]!r}", flush=True)
    dump("default_model.json", {
        "made_by": made_by(),
        "model": {"file": path.name, "sha256": sha256(path)},
        "num_steps": NUM_STEPS,
        "fixed_ids": fixed_ids,
        "prompts": entries,
    })


def permute_for_gguf(weight, num_heads):
    """Rows of a q or k matrix from Hugging Face's halves to the interleaved pairs of GGUF."""
    head_dim = weight.shape[0] // num_heads
    return weight.reshape(num_heads, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(weight.shape)


@torch.no_grad()
def make_tiny():
    config = LlamaConfig(
        vocab_size=96, hidden_size=48, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
        rms_norm_eps=0.02, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=False, attn_implementation="eager")
    model = LlamaForCausalLM(config).to(torch.float32).eval()
    random = torch.Generator().manual_seed(20240)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=random)
        if parameter.dim() == 1:
            parameter.copy_(1.0 + 0.3 * noise)
        elif "embed_tokens" in name:
            parameter.copy_(0.2 * noise)
        else:
            gain = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
            parameter.copy_(gain * noise / parameter.shape[1] ** 0.5)

    path = HERE / "tiny_llama.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny random llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(500.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)
    names = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for name, parameter in model.named_parameters():
        data = parameter.numpy()
        if name.startswith("model.layers."):
            layer, rest = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            if rest == "self_attn.q_proj":
                data = permute_for_gguf(data, config.num_attention_heads)
            if rest == "self_attn.k_proj":
                data = permute_for_gguf(data, config.num_key_value_heads)
            target = f"blk.{layer}.{names[rest]}.weight"
        else:
            target = {"model.embed_tokens.weight": "token_embd.weight",
                      "model.norm.weight": "output_norm.weight",
                      "lm_head.weight": "output.weight"}[name]
        writer.add_tensor(target, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path.name}: {path.stat().st_size} bytes")

    entries = []
    for length in (1, 5, 130):
        ids = torch.randint(0, config.vocab_size, (length,), generator=random)
        logits = model(input_ids=ids[None]).logits[0].numpy()
        entries.append({"prompt_ids": i32(ids.numpy()), "logits": f32(logits)})
    dump("tiny_llama.json", {
        "made_by": made_by(),
        "model": {"file": path.name, "sha256": sha256(path)},
        "vocab_size": config.vocab_size,
        "prompts": entries,
    })


def make_rope():
    entries = []
    for parameters in (
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0,
         "original_max_position_embeddings": 4096},
        {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
         "original_max_position_embeddings": 32768, "beta_fast": 48.0, "beta_slow": 2.0},
    ):
        config = LlamaConfig(hidden_size=512, num_attention_heads=4, head_dim=128,
                             max_position_embeddings=131072, rope_parameters=dict(parameters))
        if parameters["rope_type"] == "default":
            positions = torch.arange(0, 128, 2, dtype=torch.int64).float()
            inverse, attention_factor = 1.0 / (parameters["rope_theta"] ** (positions / 128)), 1.0
        else:
            inverse, attention_factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
        entries.append({"parameters": parameters, "rotary_dim": 128,
                        "inverse_frequencies": f32(inverse.numpy()),
                        "attention_factor": float(attention_factor)})
    dump("rope.json", {"made_by": made_by(), "cases": entries})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="the default model's GGUF file")
    parser.add_argument("--only", choices=["default", "tiny", "rope"])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.only in (None, "tiny"):
        make_tiny()
    if args.only in (None, "rope"):
        make_rope()
    if args.only in (None, "default"):
        if not args.model:
            parser.error("--model is needed for default_model.json")
        make_default(args.model)


if __name__ == "__main__":
    main()
