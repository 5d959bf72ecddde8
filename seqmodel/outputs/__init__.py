"""Output distributions: each owns its loss, its exact likelihood and its draw.

An output maps h (..., H) to the parameters of p(x_t | x_<t), and everything else asked of it takes
those parameters, so that they are computed once.
"""

from seqmodel.outputs.bernoulli import BernoulliOutput

__all__ = ["BernoulliOutput"]
