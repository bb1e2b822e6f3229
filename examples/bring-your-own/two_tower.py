"""A two-tower ranker with a user history, for `ghostless train --backbone two_tower:TwoTower`."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ghostless.heads import FeatureInput

USER, ITEM = "user_id", "video_id"


class TwoTower(nn.Module):
    """User tower over the user and the mean of the last watched videos, video tower over the candidate."""

    history: Tensor

    def __init__(self, features: Sequence[FeatureInput], dim: int = 32, length: int = 20) -> None:
        super().__init__()
        rows = {item.name: item.rows for item in features}
        self.numbers = [item.name for item in features if item.kind == "number"]
        self.users = nn.Embedding(rows[USER], dim)
        self.videos = nn.Embedding(rows[ITEM], dim)
        for table in (self.users, self.videos):
            nn.init.normal_(table.weight, std=0.1)
        self.user_tower = nn.Sequential(nn.Linear(2 * dim, 64), nn.SiLU(), nn.Linear(64, dim))
        self.video_tower = nn.Sequential(nn.Linear(dim + len(self.numbers), 64), nn.SiLU(), nn.Linear(64, dim))
        self.register_buffer("history", torch.zeros(rows[USER], length, dtype=torch.int64))

    def observe(self, features: Mapping[str, Tensor]) -> None:
        """Training rows in their order, before training: remember the last videos of every user."""
        for user, video in zip(features[USER].tolist(), features[ITEM].tolist(), strict=True):
            if user:  # row 0 stands for all unknown users
                self.history[user] = torch.roll(self.history[user], 1)
                self.history[user, 0] = video

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        user, video = features[USER], features[ITEM]
        watched = self.history[user]
        # A training row's own video is in the history; a new candidate's is not.
        other = ((watched != 0) & (watched != video.unsqueeze(-1))).float().unsqueeze(-1)
        taste = (self.videos(watched) * other).sum(1) / other.sum(1).clamp(min=1.0)
        numbers = [features[name].unsqueeze(-1) for name in self.numbers]
        user_side = self.user_tower(torch.cat([self.users(user), taste], -1))
        video_side = self.video_tower(torch.cat([self.videos(video), *numbers], -1))
        # The features below the output layer, not a score: the head needs more than their product's sum.
        return torch.cat([user_side, video_side, user_side * video_side], -1)
