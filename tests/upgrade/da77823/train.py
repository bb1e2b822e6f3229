"""How the stored checkpoints were made: run with da77823's own Python in its checkout, `python train.py FOLDER`."""

import sys
from pathlib import Path

from learning.config import ModelConfig, TrainConfig
from learning.data.load import load
from learning.training import Trainer

for head in ("cr", "qr"):
    config = ModelConfig(head=head, hidden=(16, 8), levels=40, groups=10, bins=20, rank=4)
    train = TrainConfig(steps=60, calibration=0.2)
    Trainer(load("synthetic:400"), "synthetic:400", config, train, Path(sys.argv[1]) / head).run()
