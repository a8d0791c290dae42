#!/usr/bin/env python3
"""Measure the operators of one NVIDIA GPU with PyTorch, in about five minutes and without a network.

  python3 measure.py result.json            # on the GPU
  python3 measure.py result.json --dry      # tiny shapes on a CPU, to test the script

Times are medians of CUDA events. `lightloom measure --from result.json` turns them into an accelerator file.
"""
import json
import os
import statistics
import sys
import time
import traceback

if len(sys.argv) < 2 or "-h" in sys.argv or "--help" in sys.argv:
    sys.exit(__doc__)
OUTPUT, DRY = sys.argv[1], "--dry" in sys.argv
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DEVICE, BF16 = ("cpu" if DRY else "cuda"), torch.bfloat16
if DRY:
    torch.set_num_threads(1)
START, SECONDS = time.time(), 290.0
RESULT = {"env": {}, "gemm": [], "fp8": [], "attention": [], "train": [], "errors": []}


def elapsed():
    return time.time() - START


def save():
    RESULT["env"]["seconds"] = round(elapsed(), 1)
    with open(OUTPUT + ".part", "w") as file:
        json.dump(RESULT, file)
    os.replace(OUTPUT + ".part", OUTPUT)


def attempt(name, measure):
    """Record a failure and continue."""
    try:
        measure()
    except Exception as error:
        traceback.print_exc()
        RESULT["errors"].append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    if not DRY:
        torch.cuda.empty_cache()


def median_ms(call, target_ms=15.0, rounds=5, most=200):
    for _ in range(2):
        call()
    if DRY:
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def calls(count):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count

    count = int(min(most, max(1.0, target_ms / max(calls(1), 1e-3))))
    return statistics.median(calls(count) for _ in range(rounds))


# Tokens, inner and outer width of products in dense and expert layers, whole and split by tensor parallelism.
PRODUCTS = [
    (8192, 4096, 6144), (8192, 4096, 4096), (8192, 4096, 28672), (8192, 14336, 4096), (2048, 4096, 6144),
    (2048, 4096, 28672), (2048, 14336, 4096), (8192, 4096, 128256), (8192, 8192, 10240), (8192, 8192, 8192),
    (8192, 8192, 57344), (8192, 28672, 8192), (8192, 8192, 1280), (8192, 1024, 8192), (8192, 8192, 7168),
    (8192, 3584, 8192), (2048, 8192, 7168), (2048, 3584, 8192), (8192, 16384, 2304), (8192, 2048, 16384),
    (8192, 16384, 13312), (8192, 6656, 16384), (256, 7168, 4096), (2048, 7168, 4096), (2048, 2048, 7168),
    (512, 2048, 1536), (512, 768, 2048), (4096, 2048, 2048), (16, 4096, 28672), (128, 4096, 28672),
]


def product(m, k, n):
    if DRY:
        m, k, n = (max(16, size // 16) for size in (m, k, n))
    # Several copies, so that operands come from memory instead of the cache.
    copies = max(1, min(6, int(400e6 / (2 * (m * k + k * n + m * n)))))
    xs = [torch.randn(m, k, device=DEVICE, dtype=BF16) for _ in range(copies)]
    ws = [torch.randn(n, k, device=DEVICE, dtype=BF16) * 0.02 for _ in range(copies)]
    gs = [torch.randn(m, n, device=DEVICE, dtype=BF16) for _ in range(copies)]
    turn = [0]

    def next_turn():
        turn[0] = (turn[0] + 1) % copies
        return turn[0]

    def forward():
        at = next_turn()
        return torch.mm(xs[at], ws[at].t())

    def input_gradient():
        at = next_turn()
        return torch.mm(gs[at], ws[at])

    def weight_gradient():
        at = next_turn()
        return torch.mm(gs[at].t(), xs[at])

    row = {"m": m, "k": k, "n": n}
    for name, call in (("fwd", forward), ("dgrad", input_gradient), ("wgrad", weight_gradient)):
        row[name] = {"ms": round(median_ms(call), 5)}
    RESULT["gemm"].append(row)
    if DRY or torch.cuda.get_device_capability() < (8, 9):
        return
    xs8 = [x.to(torch.float8_e4m3fn) for x in xs]
    ws8 = [(w * 8).to(torch.float8_e4m3fn) for w in ws]
    one = torch.tensor(1.0, device=DEVICE)

    def scaled():
        at = next_turn()
        return torch._scaled_mm(xs8[at], ws8[at].t(), scale_a=one, scale_b=one, out_dtype=BF16, use_fast_accum=True)

    RESULT["fp8"].append({"m": m, "k": k, "n": n, "fast": {"ms": round(median_ms(scaled), 5)}})


def memory():
    size = 1 << (20 if DRY else 30)
    a = torch.randn(size, device=DEVICE, dtype=BF16)
    b = torch.empty_like(a)
    RESULT["env"]["copy_gbps"] = round(4 * size / median_ms(lambda: b.copy_(a), 30.0) / 1e6, 1)


# Sequences, heads and tokens; 128 values a head.
CORES = [(4, 32, 2048), (2, 32, 4096), (1, 32, 8192), (1, 32, 16384), (1, 32, 32768), (1, 8, 8192), (1, 8, 32768), (1, 8, 131072)]


def select(backend):
    torch.backends.cuda.enable_flash_sdp(backend == "flash")
    torch.backends.cuda.enable_cudnn_sdp(backend == "cudnn")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(DRY)


def core(b, h, s, backend):
    if DRY:
        h, s = 4, min(s, 256)
    select(backend)
    q, k, v = (torch.randn(b, h, s, 128, device=DEVICE, dtype=BF16, requires_grad=True) for _ in range(3))
    gradient = torch.randn(b, h, s, 128, device=DEVICE, dtype=BF16)

    def attend():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        q.grad = k.grad = v.grad = None
        attend().backward(gradient)

    with torch.no_grad():
        forward = median_ms(attend, 20.0, 3)
    RESULT["attention"].append({
        "backend": backend, "b": b, "h": h, "s": s, "d": 128,
        "fwd_ms": round(forward, 4), "fb_ms": round(median_ms(both, 20.0, 3), 4)})


class Layer(nn.Module):
    """A decoder layer with grouped-query attention, rotary positions, RMS norms and SwiGLU."""

    def __init__(self, hidden, heads, groups, width):
        super().__init__()
        self.heads, self.groups = heads, groups
        self.norms = nn.ModuleList(nn.RMSNorm(hidden, eps=1e-5) for _ in range(2))
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * 128, bias=False)
        self.out = nn.Linear(heads * 128, hidden, bias=False)
        self.up = nn.Linear(hidden, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    @staticmethod
    def rotate(x, cos, sin):
        left, right = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-right, left], -1) * sin[:, None]

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        qkv = self.qkv(self.norms[0](x)).view(b, s, -1, 128)
        q, k, v = qkv.split([self.heads, self.groups, self.groups], 2)
        q, k = (self.rotate(part, cos, sin).transpose(1, 2) for part in (q, k))
        attended = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, s, -1))
        gate, up = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Adam:
    """Weights and gradients with 16 bits; master weights and moments with 32 bits."""

    def __init__(self, weights):
        self.weights = list(weights)
        self.master = [weight.detach().float() for weight in self.weights]
        for master in self.master:
            master.grad = torch.zeros_like(master)
        self.adam = torch.optim.AdamW(self.master, lr=1e-5, fused=not DRY)

    def step(self):
        torch._foreach_copy_([m.grad for m in self.master], [w.grad for w in self.weights])
        self.adam.step()
        with torch.no_grad():
            torch._foreach_copy_([w.detach() for w in self.weights], self.master)


SHAPES = {"8b": (4096, 32, 8, 14336, 4), "70b": (8192, 64, 8, 28672, 2)}
STEPS = [
    ("8b", 8192, 1, "none", False), ("8b", 2048, 1, "none", False), ("8b", 4096, 2, "none", False), ("8b", 8192, 1, "full", False),
    ("8b", 32768, 1, "none", False), ("8b", 8192, 1, "none", True), ("8b", 2048, 4, "none", True),
    ("70b", 8192, 1, "none", False), ("70b", 2048, 1, "none", False), ("70b", 8192, 1, "full", False), ("70b", 4096, 1, "none", True),
]


def layers_of(shape):
    hidden, heads, groups, width, count = SHAPES[shape] if not DRY else (256, 2, 1, 512, 2)
    layers = nn.ModuleList(Layer(hidden, heads, groups, width) for _ in range(count)).to(DEVICE, BF16)
    return layers, Adam(layers.parameters())


def step(shape, layers, adam, s, b, recompute, compiled):
    s = min(s, 128) if DRY else s
    used = [torch.compile(layer, dynamic=False) for layer in layers] if compiled and not DRY else list(layers)
    angles = torch.arange(s, device=DEVICE)[:, None] * (5e5 ** (-torch.arange(64, device=DEVICE) / 64))
    cos, sin = (torch.cat([f(angles), f(angles)], -1).to(BF16) for f in (torch.cos, torch.sin))
    x = torch.randn(b, s, layers[0].qkv.in_features, device=DEVICE, dtype=BF16, requires_grad=True)
    gradient = torch.randn_like(x) / s

    def forward():
        y = x
        for layer in used:
            y = checkpoint(layer, y, cos, sin, use_reentrant=False) if recompute == "full" else layer(y, cos, sin)
        return y

    def whole():
        for weight in adam.weights:
            weight.grad = None
        forward().backward(gradient)
        adam.step()

    row = {"shape": shape, "layers": len(layers), "s": s, "b": b, "recompute": recompute, "compile": compiled, "fwd_ms": None}
    row["step_ms"] = round(median_ms(whole, 60.0, 3, 20), 3)
    if recompute == "none" and not compiled:
        with torch.no_grad():
            row["fwd_ms"] = round(median_ms(forward, 60.0, 3, 20), 3)
    row["opt_ms"] = round(median_ms(adam.step, 60.0, 3, 20), 3)
    RESULT["train"].append(row)


def main():
    env = RESULT["env"]
    env.update({"torch": torch.__version__, "cuda": torch.version.cuda or "none", "gpu": "cpu", "date": time.strftime("%Y-%m-%d")})
    if not DRY:
        env["gpu"] = torch.cuda.get_device_name()
    torch.manual_seed(0)
    attempt("memory", memory)
    for shape in PRODUCTS:
        attempt(f"product {shape}", lambda: product(*shape))
    for shape in CORES:
        for backend in ("flash", "cudnn"):
            attempt(f"attention {shape} {backend}", lambda: core(*shape, backend))
    save()
    select("cudnn" if not DRY and torch.cuda.get_device_capability() >= (9, 0) else "flash")
    built, name = [], None
    for shape, *rest in STEPS:
        if elapsed() > SECONDS:
            RESULT["errors"].append(f"step {shape} {rest}: no time left")
            continue
        if shape != name:
            built, name = [], shape
            attempt(f"layers {shape}", lambda: built.extend(layers_of(shape)))
        if built:
            attempt(f"step {shape} {rest}", lambda: step(shape, *built, *rest))
        print(f"{elapsed():5.0f} s: {len(RESULT['train'])} of {len(STEPS)} steps", file=sys.stderr)
        save()
    save()
    print(f"{OUTPUT}: {len(RESULT['gemm'])} products, {len(RESULT['attention'])} attention cores, {len(RESULT['train'])} steps, {len(RESULT['errors'])} errors")


main()
