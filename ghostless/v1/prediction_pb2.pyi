from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Output(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_UNSPECIFIED: _ClassVar[Output]
    OUTPUT_MEAN: _ClassVar[Output]
    OUTPUT_QUANTILES: _ClassVar[Output]
    OUTPUT_BINS: _ClassVar[Output]
    OUTPUT_UNCERTAINTY: _ClassVar[Output]
    OUTPUT_CATEGORICAL_UNCERTAINTY: _ClassVar[Output]
    OUTPUT_DENSITY: _ClassVar[Output]
    OUTPUT_EMG_DENSITY: _ClassVar[Output]
OUTPUT_UNSPECIFIED: Output
OUTPUT_MEAN: Output
OUTPUT_QUANTILES: Output
OUTPUT_BINS: Output
OUTPUT_UNCERTAINTY: Output
OUTPUT_CATEGORICAL_UNCERTAINTY: Output
OUTPUT_DENSITY: Output
OUTPUT_EMG_DENSITY: Output

class Int64List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class FloatList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class StringList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("int64s", "floats", "strings")
    INT64S_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    int64s: Int64List
    floats: FloatList
    strings: StringList
    def __init__(self, int64s: _Optional[_Union[Int64List, _Mapping]] = ..., floats: _Optional[_Union[FloatList, _Mapping]] = ..., strings: _Optional[_Union[StringList, _Mapping]] = ...) -> None: ...

class Scoring(_message.Message):
    __slots__ = ("mean", "quantile", "ucb", "thompson", "acquisition", "risk_averse")
    class Mean(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Quantile(_message.Message):
        __slots__ = ("level",)
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        level: float
        def __init__(self, level: _Optional[float] = ...) -> None: ...
    class Ucb(_message.Message):
        __slots__ = ("kappa",)
        KAPPA_FIELD_NUMBER: _ClassVar[int]
        kappa: float
        def __init__(self, kappa: _Optional[float] = ...) -> None: ...
    class Thompson(_message.Message):
        __slots__ = ("seed", "scale")
        SEED_FIELD_NUMBER: _ClassVar[int]
        SCALE_FIELD_NUMBER: _ClassVar[int]
        seed: int
        scale: float
        def __init__(self, seed: _Optional[int] = ..., scale: _Optional[float] = ...) -> None: ...
    class Acquisition(_message.Message):
        __slots__ = ("gamma",)
        GAMMA_FIELD_NUMBER: _ClassVar[int]
        gamma: float
        def __init__(self, gamma: _Optional[float] = ...) -> None: ...
    class RiskAverse(_message.Message):
        __slots__ = ("weight",)
        WEIGHT_FIELD_NUMBER: _ClassVar[int]
        weight: float
        def __init__(self, weight: _Optional[float] = ...) -> None: ...
    MEAN_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    UCB_FIELD_NUMBER: _ClassVar[int]
    THOMPSON_FIELD_NUMBER: _ClassVar[int]
    ACQUISITION_FIELD_NUMBER: _ClassVar[int]
    RISK_AVERSE_FIELD_NUMBER: _ClassVar[int]
    mean: Scoring.Mean
    quantile: Scoring.Quantile
    ucb: Scoring.Ucb
    thompson: Scoring.Thompson
    acquisition: Scoring.Acquisition
    risk_averse: Scoring.RiskAverse
    def __init__(self, mean: _Optional[_Union[Scoring.Mean, _Mapping]] = ..., quantile: _Optional[_Union[Scoring.Quantile, _Mapping]] = ..., ucb: _Optional[_Union[Scoring.Ucb, _Mapping]] = ..., thompson: _Optional[_Union[Scoring.Thompson, _Mapping]] = ..., acquisition: _Optional[_Union[Scoring.Acquisition, _Mapping]] = ..., risk_averse: _Optional[_Union[Scoring.RiskAverse, _Mapping]] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("model", "version", "context", "candidates", "outputs", "quantile_levels", "thresholds", "scoring", "top_k", "request_id")
    class ContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Column
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
    class CandidatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Column
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Column, _Mapping]] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_LEVELS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    context: _containers.MessageMap[str, Column]
    candidates: _containers.MessageMap[str, Column]
    outputs: _containers.RepeatedScalarFieldContainer[Output]
    quantile_levels: _containers.RepeatedScalarFieldContainer[float]
    thresholds: _containers.RepeatedScalarFieldContainer[float]
    scoring: Scoring
    top_k: int
    request_id: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., context: _Optional[_Mapping[str, Column]] = ..., candidates: _Optional[_Mapping[str, Column]] = ..., outputs: _Optional[_Iterable[_Union[Output, str]]] = ..., quantile_levels: _Optional[_Iterable[float]] = ..., thresholds: _Optional[_Iterable[float]] = ..., scoring: _Optional[_Union[Scoring, _Mapping]] = ..., top_k: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class Quantiles(_message.Message):
    __slots__ = ("levels", "values")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[float]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, levels: _Optional[_Iterable[float]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class Bins(_message.Message):
    __slots__ = ("edges", "probabilities")
    EDGES_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    edges: _containers.RepeatedScalarFieldContainer[float]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, edges: _Optional[_Iterable[float]] = ..., probabilities: _Optional[_Iterable[float]] = ...) -> None: ...

class Atoms(_message.Message):
    __slots__ = ("values", "probabilities")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ..., probabilities: _Optional[_Iterable[float]] = ...) -> None: ...

class Density(_message.Message):
    __slots__ = ("grid", "values")
    GRID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    grid: _containers.RepeatedScalarFieldContainer[float]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, grid: _Optional[_Iterable[float]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class Uncertainty(_message.Message):
    __slots__ = ("aleatoric", "epistemic", "total", "logit_variance", "epistemic_last_layer", "epistemic_candidate")
    ALEATORIC_FIELD_NUMBER: _ClassVar[int]
    EPISTEMIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LOGIT_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    EPISTEMIC_LAST_LAYER_FIELD_NUMBER: _ClassVar[int]
    EPISTEMIC_CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    aleatoric: _containers.RepeatedScalarFieldContainer[float]
    epistemic: _containers.RepeatedScalarFieldContainer[float]
    total: _containers.RepeatedScalarFieldContainer[float]
    logit_variance: _containers.RepeatedScalarFieldContainer[float]
    epistemic_last_layer: _containers.RepeatedScalarFieldContainer[float]
    epistemic_candidate: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, aleatoric: _Optional[_Iterable[float]] = ..., epistemic: _Optional[_Iterable[float]] = ..., total: _Optional[_Iterable[float]] = ..., logit_variance: _Optional[_Iterable[float]] = ..., epistemic_last_layer: _Optional[_Iterable[float]] = ..., epistemic_candidate: _Optional[_Iterable[float]] = ...) -> None: ...

class CategoricalUncertainty(_message.Message):
    __slots__ = ("aleatoric", "epistemic", "total", "epistemic_delta")
    ALEATORIC_FIELD_NUMBER: _ClassVar[int]
    EPISTEMIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    EPISTEMIC_DELTA_FIELD_NUMBER: _ClassVar[int]
    aleatoric: _containers.RepeatedScalarFieldContainer[float]
    epistemic: _containers.RepeatedScalarFieldContainer[float]
    total: _containers.RepeatedScalarFieldContainer[float]
    epistemic_delta: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, aleatoric: _Optional[_Iterable[float]] = ..., epistemic: _Optional[_Iterable[float]] = ..., total: _Optional[_Iterable[float]] = ..., epistemic_delta: _Optional[_Iterable[float]] = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("model", "version", "request_id", "rows", "mean", "quantiles", "bins", "uncertainty", "categorical_uncertainty", "exceedance", "score", "ranking", "density", "atoms", "emg_density")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    UNCERTAINTY_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_UNCERTAINTY_FIELD_NUMBER: _ClassVar[int]
    EXCEEDANCE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    DENSITY_FIELD_NUMBER: _ClassVar[int]
    ATOMS_FIELD_NUMBER: _ClassVar[int]
    EMG_DENSITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    request_id: str
    rows: int
    mean: _containers.RepeatedScalarFieldContainer[float]
    quantiles: Quantiles
    bins: Bins
    uncertainty: Uncertainty
    categorical_uncertainty: CategoricalUncertainty
    exceedance: _containers.RepeatedScalarFieldContainer[float]
    score: _containers.RepeatedScalarFieldContainer[float]
    ranking: _containers.RepeatedScalarFieldContainer[int]
    density: Density
    atoms: Atoms
    emg_density: Density
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., request_id: _Optional[str] = ..., rows: _Optional[int] = ..., mean: _Optional[_Iterable[float]] = ..., quantiles: _Optional[_Union[Quantiles, _Mapping]] = ..., bins: _Optional[_Union[Bins, _Mapping]] = ..., uncertainty: _Optional[_Union[Uncertainty, _Mapping]] = ..., categorical_uncertainty: _Optional[_Union[CategoricalUncertainty, _Mapping]] = ..., exceedance: _Optional[_Iterable[float]] = ..., score: _Optional[_Iterable[float]] = ..., ranking: _Optional[_Iterable[int]] = ..., density: _Optional[_Union[Density, _Mapping]] = ..., atoms: _Optional[_Union[Atoms, _Mapping]] = ..., emg_density: _Optional[_Union[Density, _Mapping]] = ...) -> None: ...

class RecordOutcomesRequest(_message.Message):
    __slots__ = ("request_ids", "rows", "actuals")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ACTUALS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedScalarFieldContainer[int]
    actuals: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[int]] = ..., actuals: _Optional[_Iterable[float]] = ...) -> None: ...

class RecordOutcomesResponse(_message.Message):
    __slots__ = ("results", "joined", "late", "unknown", "duplicate", "invalid", "skipped")
    class Result(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESULT_UNSPECIFIED: _ClassVar[RecordOutcomesResponse.Result]
        JOINED: _ClassVar[RecordOutcomesResponse.Result]
        LATE: _ClassVar[RecordOutcomesResponse.Result]
        UNKNOWN: _ClassVar[RecordOutcomesResponse.Result]
        DUPLICATE: _ClassVar[RecordOutcomesResponse.Result]
        INVALID: _ClassVar[RecordOutcomesResponse.Result]
        SKIPPED: _ClassVar[RecordOutcomesResponse.Result]
    RESULT_UNSPECIFIED: RecordOutcomesResponse.Result
    JOINED: RecordOutcomesResponse.Result
    LATE: RecordOutcomesResponse.Result
    UNKNOWN: RecordOutcomesResponse.Result
    DUPLICATE: RecordOutcomesResponse.Result
    INVALID: RecordOutcomesResponse.Result
    SKIPPED: RecordOutcomesResponse.Result
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedScalarFieldContainer[RecordOutcomesResponse.Result]
    joined: int
    late: int
    unknown: int
    duplicate: int
    invalid: int
    skipped: int
    def __init__(self, results: _Optional[_Iterable[_Union[RecordOutcomesResponse.Result, str]]] = ..., joined: _Optional[int] = ..., late: _Optional[int] = ..., unknown: _Optional[int] = ..., duplicate: _Optional[int] = ..., invalid: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "default_model", "workers")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    default_model: str
    workers: int
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., default_model: _Optional[str] = ..., workers: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Feature(_message.Message):
    __slots__ = ("name", "type", "role", "vocabulary_size")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[Feature.Type]
        INT64: _ClassVar[Feature.Type]
        FLOAT: _ClassVar[Feature.Type]
        STRING: _ClassVar[Feature.Type]
    TYPE_UNSPECIFIED: Feature.Type
    INT64: Feature.Type
    FLOAT: Feature.Type
    STRING: Feature.Type
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[Feature.Role]
        CONTEXT: _ClassVar[Feature.Role]
        CANDIDATE: _ClassVar[Feature.Role]
    ROLE_UNSPECIFIED: Feature.Role
    CONTEXT: Feature.Role
    CANDIDATE: Feature.Role
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: Feature.Type
    role: Feature.Role
    vocabulary_size: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Feature.Type, str]] = ..., role: _Optional[_Union[Feature.Role, str]] = ..., vocabulary_size: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("name", "unit", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    low: float
    high: float
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "versions", "head", "method", "features", "target", "outputs", "quantile_levels", "edges", "density_grid", "metadata", "atoms", "outputs_on_request")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Model.State]
        LOADING: _ClassVar[Model.State]
        READY: _ClassVar[Model.State]
        FAILED: _ClassVar[Model.State]
    STATE_UNSPECIFIED: Model.State
    LOADING: Model.State
    READY: Model.State
    FAILED: Model.State
    class Version(_message.Message):
        __slots__ = ("version", "state", "in_service", "message")
        VERSION_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        IN_SERVICE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        version: int
        state: Model.State
        in_service: bool
        message: str
        def __init__(self, version: _Optional[int] = ..., state: _Optional[_Union[Model.State, str]] = ..., in_service: bool = ..., message: _Optional[str] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_LEVELS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    DENSITY_GRID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ATOMS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_ON_REQUEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    versions: _containers.RepeatedCompositeFieldContainer[Model.Version]
    head: str
    method: str
    features: _containers.RepeatedCompositeFieldContainer[Feature]
    target: Target
    outputs: _containers.RepeatedScalarFieldContainer[Output]
    quantile_levels: _containers.RepeatedScalarFieldContainer[float]
    edges: _containers.RepeatedScalarFieldContainer[float]
    density_grid: _containers.RepeatedScalarFieldContainer[float]
    metadata: _containers.ScalarMap[str, str]
    atoms: _containers.RepeatedScalarFieldContainer[float]
    outputs_on_request: _containers.RepeatedScalarFieldContainer[Output]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[Model.Version, _Mapping]]] = ..., head: _Optional[str] = ..., method: _Optional[str] = ..., features: _Optional[_Iterable[_Union[Feature, _Mapping]]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[Output, str]]] = ..., quantile_levels: _Optional[_Iterable[float]] = ..., edges: _Optional[_Iterable[float]] = ..., density_grid: _Optional[_Iterable[float]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., atoms: _Optional[_Iterable[float]] = ..., outputs_on_request: _Optional[_Iterable[_Union[Output, str]]] = ...) -> None: ...
