"""PyTorch: backbones, posterior, heads, data, training, metrics."""

import os

# torch's OpenMP threads spin while they wait, and lose ten times the run time to it as soon as another program wants
# the same cores (KuaiRand epoch on 2 cores beside one busy process: 9.8 s waiting passively, over 60 s spinning; alone
# there is no difference). The runtime reads this once, when torch is imported, so it must be said before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
