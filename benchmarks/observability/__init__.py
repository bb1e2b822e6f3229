"""`ghostless bench observability`: the metrics of a real server in a real Prometheus, and their cost."""
