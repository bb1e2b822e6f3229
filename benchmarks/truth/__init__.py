"""`ghostless bench truth`: whether models trained with defaults predict the right distributions, by independent scores.

judge         scores of a CDF with atoms: randomised PIT, coverage, KS, CRPS, discretised NLL, ECE
parts         rows for fitting and rows for evaluation
store         finished runs on disk
product       trains and predicts with defaults; the only module that uses the product's interfaces
rivals        LightGBM quantile models on the same rows
real_data     KuaiRand, KuaiRec, Uber
other_tables  other tables, evaluated in the same way
variances     the split of the variance, checked by pairs of rows and against a known truth
targets       synthetic targets whose conditional distribution is known
synthetic     figures on these targets and on the demo's world
units         the same target in other units
command       the command line
"""

from benchmarks.truth.command import bench

__all__ = ["bench"]
