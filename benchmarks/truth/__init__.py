"""`ghostless bench truth`: whether the distributions of default models are true, by a judge of its own.

judge         scores of a CDF with atoms: randomised PIT, coverage, KS, CRPS, discretised NLL, ECE
parts         rows to fit and rows to judge
store         finished runs on disk
product       trains and predicts with the product's defaults: the only module that knows its interfaces
rivals        LightGBM quantile models on the same rows
real_data     KuaiRand, KuaiRec, Uber
other_tables  any further table, judged as these three are
variances     the split of the variance, by pairs of rows and against a known truth
targets       synthetic targets whose conditional distribution is known
synthetic     figures on these targets and on the demo's world
units         the same target in other units
command       the command line
"""

from benchmarks.truth.command import bench

__all__ = ["bench"]
