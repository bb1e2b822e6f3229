"""The result of `predict`: numpy arrays that are views of the received bytes."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from ghostless.client.errors import MalformedAnswerError
from ghostless.contract import wire
from ghostless.contract.wire import Fields, FloatArray, IndexArray, floats
from ghostless.v1 import prediction_pb2 as pb


@dataclass(frozen=True, eq=False)
class Prediction:
    """n predictive distributions. An output that was not requested, or that the model does not have, is None.

    The arrays are read-only; copy one to change it.
    """

    model: str
    version: int
    request_id: str
    rows: int
    mean: FloatArray | None = None
    """[n]."""
    levels: FloatArray | None = None
    """[q], the levels of `quantiles`."""
    quantiles: FloatArray | None = None
    """[n, q], never decreasing along a row."""
    edges: FloatArray | None = None
    """[b + 1], the edges of `bins`."""
    bins: FloatArray | None = None
    """[n, b], each row sums to 1; bin [l, u) includes the atoms in it."""
    atoms: FloatArray | None = None
    """[a], values of the target that have a point mass."""
    atom_probabilities: FloatArray | None = None
    """[n, a], the probability of each atom."""
    aleatoric: FloatArray | None = None
    """[n], variance from noise in the data, in squared target units."""
    epistemic: FloatArray | None = None
    """[n], variance from the model's own ignorance, in squared target units."""
    epistemic_candidate: FloatArray | None = None
    """[n], epistemic without the part that all candidates share through the context; used by `Ucb` and `Thompson`."""
    epistemic_last_layer: FloatArray | None = None
    """[n], the last layer's part of epistemic, as in the paper; None for older model files."""
    total: FloatArray | None = None
    """[n], aleatoric + epistemic."""
    logit_variance: FloatArray | None = None
    """[n], s^2, the variance of the last layer's outputs: the raw out-of-distribution signal."""
    categorical_aleatoric: FloatArray | None = None
    """[n], Gini impurity over the bins; histogram models only, like the next three."""
    categorical_epistemic: FloatArray | None = None
    """[n], Gini impurity."""
    categorical_total: FloatArray | None = None
    """[n], categorical_aleatoric + categorical_epistemic."""
    categorical_epistemic_delta: FloatArray | None = None
    """[n], the paper's delta-method term, which is unbounded."""
    exceedance: FloatArray | None = None
    """[n, t], P(y > threshold)."""
    density_grid: FloatArray | None = None
    """[g], points of `density` and `emg_density`."""
    density: FloatArray | None = None
    """[n, g], the density at each point."""
    emg_density: FloatArray | None = None
    """[n, g], the paper's Proposition 1, for comparison with the paper; quantile models exported with it, and only if
    `outputs` names it. It is not the distribution that the other fields describe: it is not calibrated, and most of its
    mass may lie outside the target's range."""
    score: FloatArray | None = None
    """[n], score by the scoring rule; higher is better."""
    ranking: IndexArray | None = None
    """[top_k], candidate indexes, best first."""


def parse_prediction(answer: bytes) -> Prediction:
    """Parse a serialised PredictResponse into arrays."""
    try:
        try:
            return _read(wire.scan(memoryview(answer)))
        except wire.UnusualWireError:
            # The generated code reads every valid layout and writes the one that is expected here.
            return _read(wire.scan(memoryview(pb.PredictResponse.FromString(answer).SerializeToString())))
    except (DecodeError, ValueError) as error:
        raise MalformedAnswerError(f"the response is not a consistent ghostless.v1.PredictResponse: {error}") from error


def _read(fields: Fields) -> Prediction:
    response = pb.PredictResponse
    rows = wire.integer(fields, response.ROWS_FIELD_NUMBER)
    ranking = wire.unsigned(fields, response.RANKING_FIELD_NUMBER)
    levels, quantiles = _matrix(fields, response.QUANTILES_FIELD_NUMBER, rows)
    edges, bins = _matrix(fields, response.BINS_FIELD_NUMBER, rows)
    atoms, atom_probabilities = _matrix(fields, response.ATOMS_FIELD_NUMBER, rows)
    grid, density = _matrix(fields, response.DENSITY_FIELD_NUMBER, rows)
    emg_grid, emg_density = _matrix(fields, response.EMG_DENSITY_FIELD_NUMBER, rows)
    exceedance = floats(fields, response.EXCEEDANCE_FIELD_NUMBER)
    uncertainty = wire.submessage(fields, response.UNCERTAINTY_FIELD_NUMBER) or {}
    categorical = wire.submessage(fields, response.CATEGORICAL_UNCERTAINTY_FIELD_NUMBER) or {}
    return Prediction(
        model=wire.text(fields, response.MODEL_FIELD_NUMBER),
        version=wire.integer(fields, response.VERSION_FIELD_NUMBER),
        request_id=wire.text(fields, response.REQUEST_ID_FIELD_NUMBER),
        rows=rows,
        mean=_vector(fields, response.MEAN_FIELD_NUMBER, rows),
        levels=levels,
        quantiles=quantiles,
        edges=edges,
        bins=bins,
        atoms=atoms,
        atom_probabilities=atom_probabilities,
        aleatoric=_vector(uncertainty, pb.Uncertainty.ALEATORIC_FIELD_NUMBER, rows),
        epistemic=_vector(uncertainty, pb.Uncertainty.EPISTEMIC_FIELD_NUMBER, rows),
        epistemic_candidate=_vector(uncertainty, pb.Uncertainty.EPISTEMIC_CANDIDATE_FIELD_NUMBER, rows),
        epistemic_last_layer=_vector(uncertainty, pb.Uncertainty.EPISTEMIC_LAST_LAYER_FIELD_NUMBER, rows),
        total=_vector(uncertainty, pb.Uncertainty.TOTAL_FIELD_NUMBER, rows),
        logit_variance=_vector(uncertainty, pb.Uncertainty.LOGIT_VARIANCE_FIELD_NUMBER, rows),
        categorical_aleatoric=_vector(categorical, pb.CategoricalUncertainty.ALEATORIC_FIELD_NUMBER, rows),
        categorical_epistemic=_vector(categorical, pb.CategoricalUncertainty.EPISTEMIC_FIELD_NUMBER, rows),
        categorical_total=_vector(categorical, pb.CategoricalUncertainty.TOTAL_FIELD_NUMBER, rows),
        categorical_epistemic_delta=_vector(categorical, pb.CategoricalUncertainty.EPISTEMIC_DELTA_FIELD_NUMBER, rows),
        exceedance=exceedance.reshape(rows, -1) if exceedance.size else None,
        density_grid=emg_grid if grid is None else grid,
        density=density,
        emg_density=emg_density,
        score=_vector(fields, response.SCORE_FIELD_NUMBER, rows),
        ranking=ranking if ranking.size else None,
    )


def _vector(fields: Fields, number: int, rows: int) -> FloatArray | None:
    if number not in fields:
        return None
    return floats(fields, number).reshape(rows)


def _matrix(fields: Fields, number: int, rows: int) -> tuple[FloatArray | None, FloatArray | None]:
    """Read Quantiles, Bins, Atoms or Density, which have the same layout: field 1 is the axis, field 2 the matrix
    [rows, ...], row-major."""
    message = wire.submessage(fields, number)
    if message is None:
        return None, None
    return floats(message, 1), floats(message, 2).reshape(rows, -1)
