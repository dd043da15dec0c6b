"""LoRA: fine-tuning of a Llama-like model whose own parameters are frozen, under a budget of device memory.

python examples/finetune_lora.py                       a tiny model on generated text, seconds on a CPU
python examples/finetune_lora.py --rank 16 --text book.txt
python examples/finetune_lora.py --budget 8GiB --width 2048 --layers 32 --length 1024 --batch 8 --bf16
python examples/finetune_lora.py --start first.pt --out adapters.pt    parameters from finetune_llama.py
python examples/finetune_lora.py --draw memory.png     the memory over one step, planned only

Beside every projection of the attention there are two small matrices, which alone are trained. Frozen parameters have
neither gradients nor optimizer state: what does not fit on the device waits on the host and is only ever read.
"""

import torch
from finetune_llama import arguments, draw, made, text_of, train
from torch import nn


class Adapted(nn.Module):
    """A frozen layer and a change of low rank: y = W x + scale · B A x. B begins as zeros: nothing changes at first."""

    def __init__(self, layer, rank, scale=2.0):
        super().__init__()
        self.layer, self.scale = layer, scale
        self.a = nn.Parameter(torch.randn(rank, layer.in_features, device=layer.weight.device) / rank)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank, device=layer.weight.device))

    def forward(self, x):
        return self.layer(x) + self.scale * (x @ self.a.t() @ self.b.t())


def adapt(model, rank):
    """Freeze a model and put adapters beside the projections of its attention."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("query", "key", "value", "out"):
            setattr(block.attention, name, Adapted(getattr(block.attention, name), rank))
    return model


def main(words=None):
    options = arguments(__doc__, rank=True).parse_args(words)
    model, device = made(options)
    adapt(model, options.rank)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    share = sum(p.numel() for p in trained.values()) / sum(p.numel() for p in model.parameters())
    print(f"{share:.1%} of the parameters are trained")
    optimizer = torch.optim.AdamW(trained.values(), lr=options.lr)
    if options.draw:
        return draw(model, optimizer, options)
    shown = train(model, optimizer, text_of(options.text), options, device)
    if options.out:
        torch.save({name: p.detach().cpu() for name, p in trained.items()}, options.out)
    return shown


if __name__ == "__main__":
    main()
