"""How the stored checkpoints were made: run with fd7b8c1's own Python in its checkout, `train.py FOLDER`."""

import sys
from pathlib import Path

from learning import pool
from learning.config import ModelConfig, TrainConfig
from learning.data.load import load
from learning.training import Trainer

out = Path(sys.argv[1])
made = []
for head in ("cr", "qr"):
    config = ModelConfig(head=head, hidden=(32, 16), levels=40, groups=10, bins=20)
    trained = Trainer(load("synthetic:600"), "synthetic:600", config, TrainConfig(epochs=40, calibration=0.2)).run()
    trained.save(out / head)
    made.append(trained)
pool.Pool(tuple(made), (0.25, 0.75)).save(out)
