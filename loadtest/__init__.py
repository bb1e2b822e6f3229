"""Load tests of a running server: open-loop generator, comparison with ensembles, soak, spikes and overload."""
