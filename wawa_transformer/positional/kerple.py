"""KERPLE (Chi et al. 2022): a trained kernel of the distance."""

import torch
from torch import Tensor, nn

from wawa_transformer.common.limits import check_choice
from wawa_transformer.positional.base import EncodingContext, GeneratorFor, Positions
from wawa_transformer.positional.relative import RelativeEncoding

MIN_START = 0.01  # the smallest starting value of the parameters, as in the published code


class Kerple(RelativeEncoding, kind="kerple"):
    """A kernel of the distance (Chi et al. 2022, section 4): two trained numbers for each head.

    ``log``: ``-a · log(1 + b |distance|)``; ``power``: ``-a · |distance|^b``, b less than 2. Both
    are positive by construction (``a = exp(α)``, ``b = exp(β)`` or ``2 sigmoid(β)``), where the
    published code clips them. The kernel is even. Published for decoders, where every key is at or
    before its query; where keys are on both sides, each side has its own numbers, since a function
    of the absolute distance could not tell a sequence from its mirror image.
    """

    content_independent = True

    def __init__(self, context: EncodingContext, form: str = "log") -> None:
        super().__init__(context)
        check_choice("pe.form", form, ("log", "power"))
        self.form = form
        sides = 1 if context.causal else 2  # to the left, to the right
        self.alpha = nn.Parameter(torch.empty(sides, context.num_heads))
        self.beta = nn.Parameter(torch.empty(sides, context.num_heads))
        self.reset_parameters(lambda name: torch.default_generator)

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        distance = self.all_distances(query, key)  # (R,)
        sides = [
            self.kernel(distance.abs(), alpha, beta)
            for alpha, beta in zip(self.alpha[..., None], self.beta[..., None], strict=True)
        ]  # (H,R) each
        values = torch.where(distance > 0, sides[-1], sides[0]).to(q.dtype)
        return self.expand_to_pairs(values[None, :, None], query, key)  # (b,H,Q,K)

    def kernel(self, far: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        """The bias at distances ``far``, which broadcasts with ``alpha`` and ``beta (H,1)``."""
        if self.form == "log":
            return -alpha.exp() * torch.log1p(beta.exp() * far)
        return -alpha.exp() * far.to(beta.dtype).pow(2 * beta.sigmoid())

    def reset_parameters(self, generator_for: GeneratorFor) -> None:
        """Draw starting values as published: uniform below 1, or below 2."""
        # Only the factor of the logarithm is below 2.
        for name, parameter in (("alpha", self.alpha), ("beta", self.beta)):
            nn.init.uniform_(parameter, generator=generator_for(name))
        with torch.no_grad():
            self.alpha.clamp_(min=MIN_START).mul_(2 if self.form == "log" else 1).log_()
            self.beta.clamp_(min=MIN_START)
            if self.form == "log":
                self.beta.log_()
            else:  # b = 2 sigmoid(beta) is uniform below 2
                self.beta.clamp_(max=1 - MIN_START).logit_()
