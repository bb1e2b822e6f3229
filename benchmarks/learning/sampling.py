"""Checks CR's approximations against posterior draws: the mean of the softmax, and the split of its variance."""

import math
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor

from benchmarks.learning.categorical import LOGIT_SCALES, logits
from ghostless.heads.closed_forms import categorical
from ghostless.heads.closed_forms.categorical import Decomposition
from loadtest.figures import Figures

VARIANCES = (0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
DRAWS = 200_000


@dataclass(frozen=True)
class LogitEstimates:
    """Estimates from draws z ~ N(m, s^2 I), for one row of logits."""

    p: Tensor
    total: float
    epistemic: float
    cross_entropy: float
    cross_entropy_error: float


def sample(m: Tensor, s2: float, label: int, draws: int = DRAWS, seed: int = 0, chunk: int = 20_000) -> LogitEstimates:
    """m [K]. Epistemic is the summed variance of the bins' probabilities, total the Gini impurity of their mean."""
    generator = torch.Generator().manual_seed(seed)
    count, total, squares = 0, torch.zeros_like(m), torch.zeros_like(m)
    mean = m.float()
    losses, loss_squares = 0.0, 0.0
    while count < draws:
        size = min(chunk, draws - count)
        z = mean + math.sqrt(s2) * torch.randn(size, len(m), generator=generator)
        log_p = torch.log_softmax(z, -1)
        p, loss = log_p.exp(), -log_p[:, label].double()
        total += p.sum(0, dtype=m.dtype)
        squares += p.square().sum(0, dtype=m.dtype)
        losses += loss.sum().item()
        loss_squares += loss.square().sum().item()
        count += size
    p, mean_loss = total / draws, losses / draws
    error = math.sqrt(max(loss_squares / draws - mean_loss**2, 0.0) / draws)
    return LogitEstimates(
        p, (1 - p.square().sum()).item(), (squares / draws - p.square()).sum().item(), mean_loss, error
    )


def measure_sampling(figures: Figures, rows: int, draws: int = DRAWS) -> None:
    """Compare with draws for `rows` rows of logits at each scale."""
    title = f"CR epistemic (Gini) against {draws:,} posterior draws, mean over {rows} rows"
    headings = ("logit scale", "s²", "total, sampled", "total, served", "epistemic, sampled", "served", "paper's")
    table = Table(*headings, title=title)
    epistemic_error = probit_error = 0.0
    least_aleatoric = least_gap = math.inf
    for scale in LOGIT_SCALES:
        m = logits(scale, rows)
        label = m.argmax(-1)
        for s2 in VARIANCES:
            drawn = [sample(row, s2, int(bin_), draws) for row, bin_ in zip(m, label, strict=True)]
            variance = torch.full((rows,), s2, dtype=m.dtype)
            p = categorical.probit_softmax(m, variance)
            split = categorical.gini_decomposition(p, variance)
            bound = categorical.jensen_bound(m, variance, label)
            for row, estimate in enumerate(drawn):
                difference = abs(split.epistemic[row].item() - estimate.epistemic)
                epistemic_error = max(epistemic_error, difference / estimate.total)
                probit_error = max(probit_error, (p[row] - estimate.p).abs().max().item())
                slack = bound[row].item() - estimate.cross_entropy
                least_gap = min(least_gap, slack + 4.0 * estimate.cross_entropy_error)
            least_aleatoric = min(least_aleatoric, split.aleatoric.min().item())
            table.add_row(*_cells(scale, s2, drawn, split))
    figures.console.print(table)
    figures.add("CR served epistemic, largest error relative to the total, against draws", epistemic_error, "<= 0.2")
    figures.add("CR served aleatoric, minimum", least_aleatoric, ">= 0")
    figures.add("CR probit softmax, largest error of a bin's probability against draws", probit_error, "<= 0.05")
    figures.add("Jensen bound minus sampled cross-entropy, minimum (plus 4 standard errors)", least_gap, ">= 0")


def _cells(scale: float, s2: float, drawn: list[LogitEstimates], split: Decomposition) -> list[str]:
    total = sum(estimate.total for estimate in drawn) / len(drawn)
    epistemic = sum(estimate.epistemic for estimate in drawn) / len(drawn)
    served = (split.total.mean().item(), split.epistemic.mean().item(), split.delta.mean().item())
    values = (total, served[0], epistemic, served[1], served[2])
    return [f"{scale:g}", f"{s2:g}", *(f"{value:.4f}" for value in values)]
