"""`ghostless bench learning`: what is claimed of the learning core, measured.

references      independent values by quadrature
closed_forms    Theorem 1, Proposition 1, Corollary 1, KL, piecewise CDF
mixture         the QR predictive distribution
categorical     the CR predictive distribution and its split
runs            trained models, each trained once
real_data       KuaiRand and Uber: quality, cold start, time, spectral bound
toy             away from the data
"""

from benchmarks.learning.command import bench

__all__ = ["bench"]
