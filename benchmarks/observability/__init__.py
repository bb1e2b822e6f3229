"""`ghostless bench observability`: what a real Prometheus sees of a real server, and what showing it costs."""
