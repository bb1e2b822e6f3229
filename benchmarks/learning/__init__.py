"""`ghostless bench learning`: measures the claims about the learning core.

references      independent values by quadrature
closed_forms    Theorem 1, Proposition 1, Corollary 1, KL, piecewise CDF
mixture         the QR predictive distribution
categorical     the CR predictive distribution and its split
runs            trained models, each trained once
real_data       KuaiRand and Uber: accuracy, cold start, time, spectral bound
toy             predictions far from the data
"""

from benchmarks.learning.command import bench

__all__ = ["bench"]
