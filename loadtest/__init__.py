"""Load on a running server: an open-loop generator, the comparison with ensembles, soak, spikes and overload."""
