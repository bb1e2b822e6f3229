"""`ghostless bench NAME`: the measurements behind the claims, gathered from the packages that own them."""

import sys

from cli.main import Command, build

BENCHES = (
    Command("learning", "learning.bench:bench", "Closed forms, quality on real data, uncertainty.", "learning"),
    Command("graph", "export.bench:bench", "Cost and exactness of the exported graphs.", "learning"),
    Command("serve", "serving.bench:bench", "Throughput and latency of the facade on the embedded engine."),
    Command("triton", "serving.bench.triton_command:bench", "The facade before real Triton servers."),
)

# `ghostless bench learning --quick`: what follows `bench` names the measurement to import.
app = build(BENCHES, sys.argv[2:], "Each measurement prints its figures beside their bounds.")
