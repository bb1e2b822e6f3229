"""The training application, on PyTorch: data, backbones, training, calibration, evaluation."""

import os

# torch's OpenMP threads spin while they wait. This makes training up to ten times slower if another program uses the
# same cores (a KuaiRand epoch on 2 cores with one other busy process: 9.8 s with passive waiting, over 60 s with
# spinning; without the other process there is no difference). The runtime reads this variable once, when torch is
# imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
