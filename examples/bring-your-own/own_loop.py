"""Five lines from a vanilla ranker to one with uncertainty, in a training loop of one's own."""

import numpy as np
import torch
from somebody_elses_ranker import USERS, VIDEOS, Ranker, columns

from ghostless.heads import UncertainRanker
from learning.data.synthetic import SyntheticVideos


class Hidden(Ranker):
    """The ranker without its output layer."""

    def forward(self, features):  # type: ignore[no-untyped-def,override]
        return super().forward(*features)[0]


world = SyntheticVideos(seed=0, users=USERS, items=VIDEOS)
train, held_out, test = (world.sample(8000, seed=seed) for seed in (1, 2, 3))
ids = [{name: table.columns[name] for name in ("user_id", "video_id")} for table in (train, held_out, test)]
features, y = columns(train), torch.from_numpy(train.target)
torch.manual_seed(0)

ranker = UncertainRanker(Hidden(), width=32, targets=train.target)  # 1: instead of the output layer
optimizer = torch.optim.Adam(ranker.parameter_groups(3e-3))
for _ in range(400):
    rows = torch.randint(0, train.rows, (512,))
    loss = ranker.loss([column[rows] for column in features], y[rows])  # 2: instead of the squared error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
ranker.finish([features], columns(held_out), torch.from_numpy(held_out.target))  # 3: covariance, calibration
ranker.fit_effects(ids[0], y, ids[1], columns(held_out), context=["user_id"])  # 4: what ids leave open
with torch.no_grad():
    predictive = ranker.predict(columns(test), ids[2])  # 5

low, high = predictive.quantiles(torch.tensor([0.05, 0.95])).numpy().T
print(f"coverage of 90% intervals: {np.mean((low <= test.target) & (test.target <= high)):.3f}")
print(f"epistemic share of the variance: {float((predictive.epistemic() / predictive.variance()).mean()):.3f}")
print(f"pair test: {ranker.judge_pairs(columns(test), ids[2], test.target).verdict}")
