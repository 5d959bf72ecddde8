"""Dropout whose random numbers cost little beside a small unit's step."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_STEPS = 1 << 16


class Dropout(nn.Module):
    """Sets each number to zero with probability `p` while training, and scales up the others.

    As torch.nn.Dropout (Srivastava et al. 2014), whose generator takes as long on a CPU as a whole
    step of a small unit: here torch's generator gives only the seed of NumPy's SFC64, of which each
    number takes 16 bits. `p` is thus rounded to a multiple of 2**-16.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """The numbers of x that are kept, scaled by 1 / (1 - p); all of them in evaluation."""
        kept = round((1 - self.p) * _STEPS)
        if not self.training or kept == _STEPS:
            return x
        if x.device.type != "cpu" or not kept:
            return F.dropout(x, self.p, self.training)
        seed = int(torch.randint(1 << 62, (), dtype=torch.int64))
        words = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
        drawn = words.view(np.uint16)[: x.numel()]
        factor = np.multiply(drawn < kept, _STEPS / kept, dtype=np.float32)
        return x * torch.from_numpy(factor).view(x.shape).to(x.dtype)
