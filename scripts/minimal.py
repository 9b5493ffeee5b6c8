"""An encoder-decoder Transformer in one file, with and without positions

    python scripts/minimal.py                 # the sinusoid of Vaswani et al. 2017
    python scripts/minimal.py --pe learned    # a trained vector for each position
    python scripts/minimal.py --pe none       # no encoding: what is lost without positions

Each command trains a model to reverse digits, 3 1 4 -> 4 1 3, in less than a minute on one core.
At the end it prints the exact match at each length: the share of test sources whose whole answer is
right. Training uses lengths 1 to 10. The test uses lengths 1 to 13, and sources that training never
shows. With either encoding the model learns the trained lengths, and gets most longer ones wrong.
Without an encoding the model fails from length 2 on; `ceiling` below says why.

Read from top to bottom: encodings, layers, model, task, training. The file needs torch alone. The
package `wawa_transformer` has the same model with the same parameter names, except that `norms.0`
is `residuals.0.norm` there.

Shapes: B batch, S source, T target, D d_model, H heads, Dh = D/H, V vocabulary.
"""

import argparse
import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, EOS = 0, 1, 2  # padding, begin of sequence, end of sequence
FIRST_DIGIT, VOCAB_SIZE = 3, 13  # digits 0 to 9 have the ids 3 to 12
LONGEST_TRAINED, LONGEST_TESTED = 10, 13

# Attention treats its input as a set. An encoding adds to each token embedding a vector that
# depends on the token's position alone.


class NoEncoding(nn.Module):
    """The ablation: embeddings without positions."""

    def __init__(self, d_model: int, max_len: int = 256, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x)


class PositionalEncoding(NoEncoding):
    """The fixed sinusoid of Vaswani et al. 2017, section 3.5.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))
    """

    def __init__(self, d_model: int, max_len: int = 256, dropout: float = 0.0) -> None:
        super().__init__(d_model, max_len, dropout)
        # Large angles lose their last digits in float32, so the table is computed in float64.
        position = torch.arange(max_len, dtype=torch.float64)[:, None]  # (max_len,1)
        exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model  # (ceil(D/2),)
        angle = position / 10000**exponent  # (max_len,ceil(D/2))
        table = torch.empty(max_len, d_model, dtype=torch.float64)
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle[:, : d_model // 2].cos()  # an odd D has one cosine fewer
        # Not persistent: a checkpoint needs no copy of a formula.
        self.pe = nn.Buffer(table.float()[None], persistent=False)  # (1,max_len,D)

    def forward(self, x: Tensor) -> Tensor:
        """Add positions 0, 1, 2, ... to embeddings ``x (B,S,D)``."""
        return self.dropout(x + self.pe[:, : x.size(1)])


class LearnedEncoding(NoEncoding):
    """A trained vector for each position (Gehring et al. 2017)."""

    def __init__(self, d_model: int, max_len: int = 256, dropout: float = 0.0) -> None:
        super().__init__(d_model, max_len, dropout)
        self.table = nn.Parameter(torch.randn(max_len, d_model))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.table[: x.size(1)])


ENCODINGS = {"sinusoidal": PositionalEncoding, "learned": LearnedEncoding, "none": NoEncoding}


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in H heads (section 3.2)."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)  # queries, keys and values, stacked
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attend from ``x (B,T,D)`` to ``memory (B,S,D)`` where ``mask (...,T,S)`` is True."""
        weight, bias = self.in_proj.weight.chunk(3), self.in_proj.bias.chunk(3)
        q = self.split_heads(F.linear(x, weight[0], bias[0]))  # (B,H,T,Dh)
        k = self.split_heads(F.linear(memory, weight[1], bias[1]))  # (B,H,S,Dh)
        v = self.split_heads(F.linear(memory, weight[2], bias[2]))  # (B,H,S,Dh)
        # softmax(q k^T / sqrt(Dh)) v, where the softmax leaves out masked keys.
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B,H,T,Dh)
        return self.out_proj(x.transpose(1, 2).flatten(2))  # (B,H,T,Dh) -> (B,T,H,Dh) -> (B,T,D)

    def split_heads(self, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (self.num_heads, -1))  # (B,S,D) -> (B,S,H,Dh)
        return x.transpose(1, 2)  # (B,S,H,Dh) -> (B,H,S,Dh)


class FeedForward(nn.Module):
    """Two linear layers with a ReLU, at each position alone (section 3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x).relu())  # (B,S,D) -> (B,S,d_ff) -> (B,S,D)


# Each sublayer reads a normalised x, and its output is added to x itself. The paper normalises the
# sum instead. Pre-norm trains without a careful warmup (Xiong et al. 2020).


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.self_attention(y, y, mask))
        return x + self.dropout(self.feed_forward(self.norms[1](x)))


class DecoderLayer(nn.Module):
    """Self-attention to the target so far, cross-attention to the source, then feed-forward."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.cross_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, cross_mask: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.self_attention(y, y, mask))
        x = x + self.dropout(self.cross_attention(self.norms[1](x), memory, cross_mask))
        return x + self.dropout(self.feed_forward(self.norms[2](x)))


class Transformer(nn.Module):
    """The encoder-decoder of Vaswani et al. 2017, figure 1."""

    def __init__(self, pe: str, d_model=64, num_layers=1, num_heads=4, d_ff=256, dropout=0.0):
        super().__init__()
        self.d_model = d_model
        self.src_embedding = nn.Embedding(VOCAB_SIZE, d_model)
        self.tgt_embedding = nn.Embedding(VOCAB_SIZE, d_model)
        shape = (d_model, num_heads, d_ff, dropout)
        self.encoder_layers = nn.ModuleList(EncoderLayer(*shape) for _ in range(num_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(*shape) for _ in range(num_layers))
        # Pre-norm layers never normalise their sum, so each stack ends on a norm.
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder_norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, VOCAB_SIZE, bias=False)
        # Embeddings are N(0, 1/D). Times sqrt(D) their mean square is 1, the sinusoid's is 1/2.
        # torch's default, N(0, 1), times sqrt(D) has mean square D and drowns the sinusoid.
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=d_model**-0.5)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # Last, so that one seed gives all other weights the same values with every encoding.
        self.src_position = ENCODINGS[pe](d_model, dropout=dropout)
        self.tgt_position = ENCODINGS[pe](d_model, dropout=dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits ``(B,T,V)`` of the next id after each id of ``target (B,T)``."""
        real = (source != PAD)[:, None, None, :]  # (B,S) -> (B,1,1,S), for all heads and queries
        x = self.src_position(self.src_embedding(source) * math.sqrt(self.d_model))  # (B,S,D)
        for layer in self.encoder_layers:
            x = layer(x, real)
        memory = self.encoder_norm(x)  # (B,S,D)

        # Target position t may attend to 0 ... t. This hides padding too, which is on the right.
        length = target.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()  # (T,T)
        x = self.tgt_position(self.tgt_embedding(target) * math.sqrt(self.d_model))  # (B,T,D)
        for layer in self.decoder_layers:
            x = layer(x, memory, causal, real)
        return self.output(self.decoder_norm(x))  # (B,T,D) -> (B,T,V)


def make_batch(rng: random.Random, lengths: list[int], test: bool) -> tuple[Tensor, Tensor]:
    """Draw sources ``(B,S)`` of the given lengths and their targets ``(B,T+1)``.

    A source is a test source if its digits sum to a multiple of 5, as a fifth of all sources do.
    """
    sources, targets = [], []
    for length in lengths:
        digits = rng.choices(range(10), k=length)
        while (sum(digits) % 5 == 0) != test:
            digits = rng.choices(range(10), k=length)
        ids = [FIRST_DIGIT + digit for digit in digits]
        sources.append(torch.tensor([*ids, EOS]))
        targets.append(torch.tensor([BOS, *reversed(ids), EOS]))
    return pad_sequence(sources, True, PAD), pad_sequence(targets, True, PAD)


def ceiling(length: int) -> float:
    """The best exact match without positions, over all sources of a length.

    Without positions the encoder treats a token alike wherever it is, and cross-attention reads the
    encoder's output as a set. So all orderings of the same digits get one answer. It is right for
    one ordering.
    """
    return math.comb(length + 9, length) / 10**length  # multisets of digits / sequences of digits


def learning_rate(step: int, steps: int, peak: float = 2e-3, warmup: int = 100) -> float:
    """Linear warmup to the peak, then linear decay to 0."""
    return peak * min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


def train_step(model: nn.Module, optimizer, source: Tensor, target: Tensor, lr: float) -> Tensor:
    """Update the weights on one batch; return nats per target token."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    # Teacher forcing: each id of the target is predicted from the right ids before it.
    logits = model(source, target[:, :-1])  # (B,T,V)
    # cross_entropy takes (B,V,T). Its mean is over the target tokens and leaves out padding.
    loss = F.cross_entropy(logits.transpose(1, 2), target[:, 1:], ignore_index=PAD)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@torch.no_grad()
def exact_match(model: nn.Module, source: Tensor, target: Tensor) -> float:
    """The share of sources that greedy decoding answers without a mistake.

    No decoding is needed. Until its first mistake greedy decoding has the right prefix, which is
    what the model is given here. So the answer is right exactly when every argmax here is right.
    """
    model.eval()
    right = model(source, target[:, :-1]).argmax(dim=-1) == target[:, 1:]  # (B,T)
    model.train()
    return (right | (target[:, 1:] == PAD)).all(dim=1).float().mean().item()


def main() -> None:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = ["cpu", accelerator.type] if accelerator else ["cpu"]
    # Without a usage text, the answer to a mistake is one sentence.
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    parser.add_argument("--pe", choices=list(ENCODINGS), default="sinusoidal")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=devices, default="cpu")
    args = parser.parse_args()
    if args.steps < 1 or not 0 <= args.seed < 2**63:
        parser.error("--steps must be at least 1, and --seed at least 0 and less than 2^63")

    # Tensors this small gain nothing from a second core.
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = Transformer(args.pe).to(args.device)
    # train_step sets the learning rate.
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    rng = random.Random(args.seed)
    for step in range(args.steps):
        lengths = [rng.randint(1, LONGEST_TRAINED) for _ in range(32)]
        source, target = (ids.to(args.device) for ids in make_batch(rng, lengths, test=False))
        loss = train_step(model, optimizer, source, target, learning_rate(step, args.steps))
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:5}  loss {loss.item():.4f}", flush=True)

    rng = random.Random(f"test {args.seed}")
    print("length  exact match  ceiling without positions")
    for n in range(1, LONGEST_TESTED + 1):
        batch = (ids.to(args.device) for ids in make_batch(rng, [n] * 1000, test=True))
        print(f"{n:6}  {exact_match(model, *batch):11.3f}  {ceiling(n):25.3f}")
    print("Each row tests 1000 random sources, so chance moves an exact match by up to 0.03.")


if __name__ == "__main__":
    main()
