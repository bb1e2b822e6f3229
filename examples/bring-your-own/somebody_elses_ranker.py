"""A ranker by a team that does not use Ghostless: trained on squared error and saved as ONNX.

python somebody_elses_ranker.py [ROWS]      # writes ranker.onnx, used.parquet, fresh.parquet and schema.json
"""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table

USERS, VIDEOS = 500, 200


class Ranker(nn.Module):
    """Ids are rows of its tables; the last row of each table is for ids that it does not know."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.users, self.videos = nn.Embedding(USERS + 1, dim), nn.Embedding(VIDEOS + 1, dim)
        self.hidden = nn.Sequential(nn.Linear(3 * dim + 1, 64), nn.SiLU(), nn.Linear(64, 32), nn.SiLU())
        self.score = nn.Linear(32, 1)

    def forward(self, user_id: Tensor, video_id: Tensor, duration_ms: Tensor) -> tuple[Tensor, Tensor]:
        user, video = self.users(user_id), self.videos(video_id)
        seconds = duration_ms.unsqueeze(-1) / 30_000.0
        hidden: Tensor = self.hidden(torch.cat([user, video, user * video, seconds], -1))
        return hidden, self.score(hidden)


def columns(table: Table) -> list[Tensor]:
    return [torch.from_numpy(table.columns[name]) for name in ("user_id", "video_id", "duration_ms")]


def train(table: Table, steps: int) -> Ranker:
    torch.manual_seed(0)
    ranker, inputs, target = Ranker(), columns(table), torch.from_numpy(table.target)
    optimizer = torch.optim.Adam(ranker.parameters(), 3e-3, weight_decay=1e-5)
    for _ in range(steps):
        rows = torch.randint(0, table.rows, (512,))
        _, score = ranker(*(column[rows] for column in inputs))
        loss = (score.squeeze(-1) - target[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return ranker.eval()


def write(ranker: Ranker, table: Table) -> None:
    rows = torch.export.Dim("rows", min=2)
    torch.onnx.export(
        ranker,
        tuple(column[:8] for column in columns(table)),
        "ranker.onnx",
        dynamo=True,
        dynamic_shapes=({0: rows}, {0: rows}, {0: rows}),
        input_names=["user_id", "video_id", "duration_ms"],
        output_names=["hidden", "score"],
        verbose=False,
    )


def main(rows: int) -> None:
    world = SyntheticVideos(seed=0, users=USERS, items=VIDEOS)
    used, fresh = world.sample(rows, seed=1), world.sample(rows, seed=2)
    write(train(used, steps=max(200, rows // 40)), used)
    for name, table in (("used", used), ("fresh", fresh)):
        target = table.schema.target.name
        pq.write_table(pa.table({**table.columns, target: table.target}), f"{name}.parquet")
    with open("schema.json", "w") as file:
        json.dump(fresh.schema.to_dict(), file, indent=2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
