"""The paper's closed forms as plain tensor functions: no modules, no state, no sampling.

Symbols are as in the paper: m and s are mean and standard deviation of a last-layer output under the posterior, kappa
is a quantile level, and sigma the scale of the asymmetric Laplace likelihood. Everything broadcasts.
"""
