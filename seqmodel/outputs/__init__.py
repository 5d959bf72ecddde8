"""Output distributions: each owns its loss, its exact likelihood and its draw.

An output maps h (..., H) to the parameters of p(x_t | x_<t), and everything else asked of it takes
those parameters, so that they are computed once.
"""

from seqmodel.outputs.bernoulli.specification import BernoulliOutput
from seqmodel.outputs.gaussian.specification import GaussianMixtureOutput
from seqmodel.outputs.logistic.specification import DiscretisedLogisticOutput

Output = BernoulliOutput | GaussianMixtureOutput | DiscretisedLogisticOutput

__all__ = ["BernoulliOutput", "DiscretisedLogisticOutput", "GaussianMixtureOutput", "Output"]
