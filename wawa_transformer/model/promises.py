"""What an encoding promises, and what to do about one that breaks a promise."""

from wawa_transformer.model.probe import ALONE, CACHED, FINITE, FUTURE, PADDING, REPEATED

DEFINED = "gradients are finite"
REACHED = "a gradient reaches every trained number"
TRAINED = "training computes what evaluation computes"
READ = "positions come from the arguments"
BF16 = "positions are as exact in bf16"
SHARED = "a bias for all layers ignores queries and keys"
KEPT = "a use leaves arguments, weights, buffers and torch's seed as they were"
HEADS_APART = "each head uses its own positions"
RELATIVE = "distances alone matter where relative = True"
UNUSED = "positions do not matter where uses_positions = False"
FRACTIONAL = "half a position counts where fractional = True"
SAVED = "a new encoding with the same weights answers the same"
COUNTED = "a checkpoint holds what training counts"
STARTED = "the starting values follow from the seed alone"
SCALED = "embed keeps the size of the embeddings"
DROPPED = "dropout acts once on an embedding"
SUMMED = "loss and NLL are sums over the real tokens"
MEET = "source and target positions meet in cross-attention"
# What is wrong in an encoding that breaks a promise. Of several, the first one explains most.
REMEDIES = {
    COUNTED: "count in a buffer, and draw what training draws from torch's own random numbers, "
    "since a checkpoint holds these alone",
    REPEATED: "random numbers are for training alone, when self.training is true, and no call may "
    "depend on an earlier one",
    PADDING: "what embed, rotate and bias give a token must not depend on padding",
    ALONE: "what embed, rotate and bias give a row must not depend on other rows, nor on the shape "
    "of a tensor",
    FUTURE: "what embed, rotate and bias give a token must not depend on later tokens",
    FINITE: "what embed, rotate and bias compute must be finite at any length",
    DEFINED: "a square root, a norm or a logarithm has no finite gradient at 0, the distance of a "
    "token to itself, so add a small number inside it",
    CACHED: "decoding hands over some tokens at a time: read their positions from the arguments "
    "positions, query and key, and never from the shape of a tensor",
    READ: "equal tokens at equal positions must be treated alike: read positions from the "
    "arguments positions, query and key; an encoding that counts tokens by their contents "
    "declares uses_positions = False",
    KEPT: "return new tensors, make parameters and buffers in __init__, and draw from a "
    "torch.Generator of your own instead of seeding torch",
    HEADS_APART: "read the positions (B,H,S) of every head, as AbsoluteEncoding.rows does, or set "
    "headwise = False",
    RELATIVE: "what it computes depends on positions themselves, so set relative = False",
    UNUSED: "what it computes depends on positions, so leave uses_positions = True",
    FRACTIONAL: "it rounds positions, so set fractional = False",
    REACHED: "train each number through embed, rotate or bias, without detach(), data, item() or "
    "no_grad(), keep lists in nn.ParameterList or nn.ModuleList, and make a buffer of what is not "
    "to be trained",
    STARTED: "draw with torch in __init__ or reset_parameters and not with numpy, and what every "
    "seed shares from a torch.Generator of your own",
    SAVED: "keep what is trained or drawn in parameters and buffers, draw with torch in __init__, "
    "and compute nothing in advance from weights, which change",
    SHARED: "its bias depends on q or k, so set content_independent = False",
    SCALED: "the model multiplies them by sqrt(d_model), so embed must not",
    DROPPED: "forward drops out what embed returns, so embed must not drop out x, and forward stay "
    "as it is",
    TRAINED: "without random numbers, embed, rotate and bias must not depend on self.training",
    SUMMED: "loss_and_nll must return a sum that padding has no part in, and with it the plain NLL",
    BF16: "form angles and distances in float32 or int64, and convert the result to q.dtype",
}
