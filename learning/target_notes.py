"""Messages about the target after training: the clipped share, and bins that are too coarse."""

from ghostless.heads.bins import COARSE_SHARE, NARROW
from learning.calibration import shortage
from learning.checkpoint import Checkpoint
from learning.data.target_range import used_share
from learning.model import choose_bins


def target_notes(checkpoint: Checkpoint, clipped: float) -> list[str]:
    """Messages for the terminal; the first, about the range, is always present. clipped: share of rows outside the
    range."""
    target, sample = checkpoint.schema.target, checkpoint.encoding.target_sample
    notes = [
        f"target '{target.name}': range {target.low:g} to {target.high:g}, {clipped:.2%} of the rows clipped to it"
    ]
    first, last, share = used_share(sample, target.low, target.high)
    if share < NARROW:
        notes.append(
            f"warning: 99.9% of the targets lie in {first:g} to {last:g}, {share:.1%} of the schema's range; "
            "leave low and high out of the schema to take the range from the data"
        )
    if checkpoint.model_config.baseline is None:
        bins = choose_bins(checkpoint.model_config, target, checkpoint.target_sample)
        first, last, held = bins.coarsest(sample)
        if held > COARSE_SHARE:
            notes.append(
                f"warning: {held:.0%} of the targets are in one bin, {first:g} to {last:g}, inside which the predicted "
                "density is constant; use --binning adaptive, a narrower range or more --bins"
            )
        few = shortage(checkpoint.calibration)
        if few:
            notes.append(f"warning: {few}")
    return notes
