"""Full fine-tuning of a Llama-like model under a budget of device memory.

python examples/finetune_llama.py                      a tiny model on generated text, seconds on a CPU
python examples/finetune_llama.py --text book.txt      text of your own, byte by byte
python examples/finetune_llama.py --budget 12GiB --width 2048 --layers 24 --length 1024 --batch 8 --bf16
python examples/finetune_llama.py --start first.pt --out second.pt     go on from saved parameters
python examples/finetune_llama.py --draw memory.png --width 2048 --layers 16 --length 1024 --tokens 32000 --bf16

All parameters are trained with AdamW. `--budget` is in bytes ("12GiB") or a share of what a step takes without a budget
("35%"). Evaluation happens between steps, within `step.paused()`. `--draw` only plans, for the GPU at hand or an H200,
and draws the memory over one step; that needs neither a GPU nor the memory.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import stretto as st

BYTES = 256  # tokens are the bytes of a text


class Attention(nn.Module):
    """Causal attention with rotary positions; several query heads share one head of keys and values."""

    def __init__(self, width, heads, shared):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared * self.size, bias=False)
        self.value = nn.Linear(width, shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        q = self.query(x).view(rows, length, self.heads, self.size).transpose(1, 2)
        k = self.key(x).view(rows, length, self.shared, self.size).transpose(1, 2)
        v = self.value(x).view(rows, length, self.shared, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.shared, dim=1) for t in (rotated(k, cos, sin), v))
        y = F.scaled_dot_product_attention(rotated(q, cos, sin), k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(rows, length, -1))


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads, shared):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.attention = Attention(width, heads, shared)
        inner = 64 * round(width * 8 / 3 / 64) or 64
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norms[0](x), cos, sin)
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width=64, layers=2, heads=4, shared=2, length=64, tokens=BYTES, bf16=False):
        super().__init__()
        self.bf16 = bf16
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads, shared) for _ in range(layers))
        self.norm, self.last = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, tokens, bias=False)
        half = width // heads // 2
        angles = torch.arange(length)[:, None] * 10_000 ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cat((angles, angles), 1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), 1).sin(), persistent=False)

    def forward(self, tokens):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.last(self.norm(x))


def text_of(path=None, seed=0):
    """The bytes of a file, or sentences that a small model can learn."""
    if path is not None:
        return torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8).long()
    draw = torch.Generator().manual_seed(seed)
    words = ["the", "a", "old", "young", "cat", "dog", "bird", "sees", "hears", "follows", "finds", "and", "then"]
    chosen = torch.randint(0, len(words), (4000,), generator=draw)
    return torch.tensor(list(" ".join(words[k] for k in chosen).encode()))


def batches(text, rows, length, seed=0):
    """Random pieces of a text and what follows each of their bytes, for ever."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(0, len(text) - length, (rows, 1), generator=draw) + torch.arange(length + 1)
        yield text[at[:, :-1]], text[at[:, 1:]]


def loss_of(said, following):
    return F.cross_entropy(said.flatten(0, 1).float(), following.flatten())


def train(model, optimizer, text, options, device):
    """Train and evaluate now and then; the losses that were shown."""

    def train_step(batch):
        optimizer.zero_grad()
        loss = loss_of(model(batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        return loss

    cut = int(0.9 * len(text))
    training = batches(text[:cut], options.batch, options.length)
    held_out = next(batches(text[cut:], options.batch, options.length, seed=1))
    batch = next(training)
    budget = options.budget
    if budget.endswith("%"):
        whole = st.memory.step(train_step, [model], [optimizer], batch, budget="1024TiB", policy="keep", device=device)
        budget = int(float(budget[:-1]) / 100 * whole.report.peak)
        whole.close()
    step = st.memory.step(train_step, [model], [optimizer], batch, budget=budget, device=device)
    print(step.report.explain() if step.report else f"not planned: {step.why}", flush=True)
    shown, began = [], time.perf_counter()
    for k in range(1, options.steps + 1):
        loss = step(next(training))
        if k % options.every == 0 or k == options.steps:
            with step.paused(), torch.no_grad():
                held = float(loss_of(model(held_out[0].to(device)), held_out[1].to(device)))
            seconds = (time.perf_counter() - began) / k
            shown.append((float(loss), held))
            print(
                f"step {k:4}: loss {shown[-1][0]:.3f}, held-out {held:.3f}, {1e3 * seconds:.0f} ms a step", flush=True
            )
    step.close()
    return shown


def arguments(description, *, rank=False):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a file to train on (default: generated sentences)")
    parser.add_argument("--start", help="parameters to begin with, as saved by --out of finetune_llama.py")
    parser.add_argument("--out", help="where to save what was trained")
    parser.add_argument("--draw", help="plan only, and draw the memory over one step to this file")
    parser.add_argument("--budget", default="35%", help='device memory: "12GiB", or a share of a plain step (35%%)')
    for name, default, meaning in (
        ("width", 64, "of the model"),
        ("layers", 2, "blocks of attention and feed-forward"),
        ("heads", 4, "of the queries"),
        ("shared", 2, "heads of keys and values"),
        ("length", 64, "tokens of a text"),
        ("tokens", BYTES, "kinds of tokens"),
        ("batch", 8, "texts of a step"),
        ("steps", 40, "to train"),
        ("every", 10, "steps between two evaluations"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (default: {default})")
    if rank:
        parser.add_argument("--rank", type=int, default=8, help="of the adapters (default: 8)")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate (default: 0.003)")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    return parser


def made(options):
    """The model that options describe, and where it is trained."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = [getattr(options, name) for name in ("width", "layers", "heads", "shared", "length", "tokens")]
    with torch.device("meta" if options.draw else device):
        model = Llama(*sizes, bf16=options.bf16)
    if options.start:
        model.load_state_dict(torch.load(options.start))
    return model, device


def draw(model, optimizer, options):
    """Plan without memory and draw the plan."""
    batch = [torch.empty(options.batch, options.length, dtype=torch.long, device="meta") for _ in range(2)]
    budget = options.budget
    if budget.endswith("%"):
        whole = st.memory.plan(model, loss_of, optimizer, batch, budget="1024TiB", policy="keep")
        budget = int(float(budget[:-1]) / 100 * whole.peak)
    plan = st.memory.plan(model, loss_of, optimizer, batch, budget=budget)
    print(plan.explain())
    many = sum(p.numel() for p in model.parameters()) / 1e9
    title = f"One training step of a Llama-like model, {many:.2g} billion parameters, budget {options.budget}"
    print("written to", plan.draw(options.draw, title))


def main(words=None):
    options = arguments(__doc__).parse_args(words)
    model, device = made(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    if options.draw:
        return draw(model, optimizer, options)
    shown = train(model, optimizer, text_of(options.text), options, device)
    if options.out:
        torch.save(model.state_dict(), options.out)
    return shown


if __name__ == "__main__":
    main()
