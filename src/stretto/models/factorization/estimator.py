"""`MatrixFactorization`: the estimator.

    model = st.MatrixFactorization(n_components=32, random_state=0).fit(X)      # X: users × items, sparse
    model.predict([[0, 10], [3, 7]])
    ids, scores = model.recommend([0, 1, 2], n=10)
    print(st.MatrixFactorization(n_components=32).plan(X))                      # what fit would do, before it does it

Same seed, same bits, whatever `n_jobs` is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, cast

from stretto.deprecation import deprecated_attribute, deprecated_parameter
from stretto.models.sklearn_base import check_is_fitted
from stretto.runtime.runtimes import Runtime

from . import persistence
from .predicting import FactorizationPrediction


class MatrixFactorization(FactorizationPrediction):
    """Factorise a sparse matrix of ratings: r ≈ p = mean + b_i + c_j + w_i·h_j.

    Over the ratings (i, j), each counted once, the fit minimises

        Σ (r − p)² + λ·(‖w_i‖² + ‖h_j‖²) + μ·(b_i² + c_j²)

    where λ is `l2_regularization` and μ is `bias_l2_regularization`. By default, plain sgd also counts a penalty once
    for each row and column, which protects those with few ratings.

    Parameters
    ----------
    n_components : int, default 32
        Length of the factors w_i and h_j. More than the smaller side of the matrix cannot help, and is refused above
        1,024.
    solver : {"sgd", "als", "ccd"}, default "sgd"
        Stochastic gradient descent, alternating least squares, or coordinate descent (CCD++). An option that belongs to
        another solver is refused unless it has its default.
    loss : {"squared", "absolute", "logistic", "bpr", "warp"}, default "squared"
        What takes the place of (r − p)²; for "logistic", ratings above 0 are positive and p is the log odds. als and
        ccd solve "squared". "bpr" and "warp" learn to rank: the values are counts of actions, as with `implicit`, which
        they imply. Each value above 0 is compared with items that the row lacks, drawn at random: bpr minimises
        log(1 + e^−d) over pairs with scores that differ by d, and warp lifts an item above one that is ranked wrongly,
        the more the lower it is ranked. "logistic" with `implicit` predicts which items a row has, from as many others.
    l2_regularization : float or None, default None
        Penalty on factors, in the units of the ratings: ratings and penalty multiplied by c give the same model in
        other units (factors · √c, mean and biases · c). None: 0.05 · `scale_`, so that the unit does not matter. Plain
        sgd with the squared loss also counts one once for each row and column: with the schedule "adaptive" 0.055 ·
        noise · `scale_` for each rating and 5.2 · noise · `scale_` once, where noise is the share of the ratings'
        variance that a model does not explain, as the training error of an early epoch shows it; with other schedules
        0.04 · `scale_` and `scale_`. Of implicit feedback by sgd, for each step: 0.01 for "bpr", 0.02 for "warp", 0.007
        for "logistic". A very strong penalty leaves mean and biases alone.
    bias_l2_regularization : float or None, default None
        Penalty on biases, without unit: b_i is 1 / (1 + bias_l2_regularization) of the mean of what the rest leaves
        over. None: 0.05; of plain sgd with the squared loss 3 once for each row and column, so that b_i is n / (n + 3)
        of that mean, for a row of n ratings.
    max_iter : int, default 20
        Epochs: passes over the ratings.
    learning_rate : float or None, default None
        Step of sgd for ratings of spread 1; None: 0.2 with the schedule "adaptive", else 0.04, adagrad 0.1,
        adarevision 0.08; of implicit feedback 0.1 for "bpr", 0.03 for "warp", 0.07 for "logistic".
    schedule : {"adaptive", "linear", "polynomial", "constant"} or None, default None
        How the step falls to zero over the epochs. With "adaptive" it also falls with the ratings of a row or column
        that were used: rows with many ratings are exact early, those with few learn fast. "polynomial" is "linear" up
        to 20 epochs; with more it falls faster, so that the sum of the steps stays the same and a longer fit does not
        overfit, as with "adaptive". None: "adaptive" for the squared loss, and "polynomial" where a learning rate is
        given or the loss is another one; adagrad "linear", adarevision "constant".
    optimizer : {"sgd", "adagrad", "adarevision"}, default "sgd"
        For solver="sgd". "adagrad" has a step for each row, by the size of its gradients so far. "adarevision" has one
        for each element and bias, without delays (with delays: `st.tables.adarevision` on tables). Its steps shrink by
        themselves, and it converges with learning rates from 0.05 to 0.4.
    biases : bool, default True
        Learn the mean and one bias for each row and column.
    implicit : bool, default False
        The values are counts of actions, not ratings, and `score` measures the ranking. With solver="als" every pair
        counts, with preference 1 where the value is positive and 0 elsewhere; there are no biases, and the penalty is
        multiplied by the confidence of each entry. With solver="sgd" the loss is "bpr", "warp" or "logistic", and the
        penalties count for each step.
    alpha : float, default 1.0
        For implicit: a value has confidence `1 + alpha·value / mean |value|`, a missing one 1. A negative value is a
        confident no, with preference 0. The unit of the counts does not matter. sgd multiplies the step of a value by
        its confidence over the mean one, at most 10, where the root mean square takes the place of the mean `|value|`;
        0 gives all values the same weight.
    negatives : int or None, default None
        For the losses of implicit feedback: items drawn for each value in an epoch. "warp" draws at most so many until
        one is ranked wrongly. None: 2 for "bpr", 10 for "warp", 4 for "logistic".
    linear_solver : {"cholesky", "cg"}, default "cholesky"
        For solver="als".
    inner : int, default 3
        Steps of "cg", or inner sweeps of ccd.
    init_scale : float or None, default None
        The first factors have standard deviation init_scale / √n_components, for ratings of spread 1; None: 0.05 for
        sgd, 0.1 with the schedule "adaptive" and for implicit feedback, 1 for the others.
    early_stopping : bool or str, default False
        Hold out a part (or give `fit` a validation set) and stop when its error no longer falls; for implicit feedback,
        when its NDCG@10 no longer rises. The name of a ranking metric, such as "ndcg@10" or "recall@20", watches that:
        of at most 10,000 users, whose held-out values above 0 are relevant.
    validation_fraction : float, default 0.1
        Share held out for early stopping.
    n_iter_no_change : int, default 3
        Epochs without improvement after which early stopping ends the fit.
    tol : float, default 0.0001
        What counts as improvement.
    warm_start : bool, default False
        `fit` continues from the factors of the last fit (and its squared gradients). Ids or indices identify the rows.
    duplicates : {"error", "first", "last", "mean", "sum", "keep"}, default "error"
        What to do with a pair rated twice.
    width : int, default 16
        Logical workers of the plan; it changes the answer, n_jobs does not.
    profile : {"exact", "fast"}, default "exact"
        "exact": same bits on every x86-64 processor.
    random_state : int, RandomState or None, default None
        Seed of the plan and the first factors.
    n_jobs : int, "auto" or None, default None
        Threads; None uses those of joblib's context (`joblib.parallel_config(n_jobs=…)`), or else every core that this
        process may use. "auto" finds the number while it fits: it measures epochs on
        every core, then on half of them, and so on while that is not slower. Never changes the answer.
    runtime : st.Serial, st.Threads, st.Cluster, st.Simulated or None, default None
        Where to run; overrides n_jobs.
    memory : int, str or None, default None
        Budget such as "2GiB"; what does not fit is cut into blocks on disk and streamed; als and ccd keep the factors
        in memory. On a cluster it is the budget of each node; with sgd the nodes read their ratings from the files, and
        the driver none. Never changes the answer.
    verbose : int, default 0
        0 quiet, 1 a progress bar, 2 the plan too.

    Attributes
    ----------
    user_factors_ : ndarray of float32 [m, n_components]
        Factors of the rows.
    item_factors_ : ndarray of float32 [n, n_components]
        Factors of the columns.
    components_ : ndarray of float32 [n_components, n]
        The column factors, as transformers name them.
    user_bias_ : ndarray of float32 [m]
        Biases of the rows.
    item_bias_ : ndarray of float32 [n]
        Biases of the columns.
    mean_ : float
        Mean of the ratings; 0 without biases.
    scale_ : float
        Standard deviation of the ratings; their root mean square without biases.
    confidence_ : float
        What a value of 1 adds to the confidence of implicit feedback: `alpha / mean |value|`, of sgd alpha / root mean
        square; 0 for ratings.
    n_ratings_ : int
        Ratings learned from, with those of earlier calls of `partial_fit`.
    n_features_in_ : int
        Number of columns seen by `fit`.
    n_iter_ : int
        Epochs done.
    n_features_in_ : int
        Columns of the matrix, n.
    history_ : list of dict
        Objective and errors after each epoch.
    plan_ : Plan
        The plan that was run.
    fingerprint_ : str
        Its hash.
    user_ids_ : IdMap or None
        Ids of the rows, where the data had them.
    item_ids_ : IdMap or None
        Ids of the columns, where the data had them.
    user_feature_map_ : FeatureMap or None
        From `user_features` of the fit to factors and bias: arrays `coef` [features, n_components + 1] and `level`, in
        units of standard deviations of the features, whose `mean` and `spread` it has.
    item_feature_map_ : FeatureMap or None
        The same for `item_features`.
    squares_ : dict of ndarray
        Sums of squared gradients, for ratings of spread 1: {"zw": [m, n_components], "zh": [n, n_components], "zb":
        [m], "zc": [n]} of adarevision, {"gw": [m], "gh": [n]} of adagrad, {} of the others.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, max_iter=5, random_state=0).fit(X)
    >>> model.predict([[0, 1], [2, 3]]).shape
    (2,)
    """

    # Former names, which still work and warn.
    row_factors_ = deprecated_attribute("user_factors_", removed_in="0.3")
    col_factors_ = deprecated_attribute("item_factors_", removed_in="0.3")
    row_bias_ = deprecated_attribute("user_bias_", removed_in="0.3")
    col_bias_ = deprecated_attribute("item_bias_", removed_in="0.3")
    row_ids_ = deprecated_attribute("user_ids_", removed_in="0.3")
    col_ids_ = deprecated_attribute("item_ids_", removed_in="0.3")
    rank = deprecated_attribute("n_components", removed_in="0.3")
    epochs = deprecated_attribute("max_iter", removed_in="0.3")
    reg = deprecated_attribute("l2_regularization", removed_in="0.3")
    bias_reg = deprecated_attribute("bias_l2_regularization", removed_in="0.3")

    @deprecated_parameter("rank", "n_components", removed_in="0.3")
    @deprecated_parameter("epochs", "max_iter", removed_in="0.3")
    @deprecated_parameter("reg", "l2_regularization", removed_in="0.3")
    @deprecated_parameter("bias_reg", "bias_l2_regularization", removed_in="0.3")
    def __init__(
        self,
        n_components: int = 32,
        *,
        solver: str = "sgd",
        loss: str = "squared",
        l2_regularization: float | None = None,
        bias_l2_regularization: float | None = None,
        max_iter: int = 20,
        learning_rate: float | None = None,
        schedule: str | None = None,
        optimizer: str = "sgd",
        biases: bool = True,
        implicit: bool = False,
        alpha: float = 1.0,
        negatives: int | None = None,
        linear_solver: str = "cholesky",
        inner: int = 3,
        init_scale: float | None = None,
        early_stopping: bool | str = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        tol: float = 1e-4,
        warm_start: bool = False,
        duplicates: str = "error",
        width: int = 16,
        profile: str = "exact",
        random_state: Any = None,
        n_jobs: int | Literal["auto"] | None = None,
        runtime: Runtime | None = None,
        memory: int | str | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.loss = loss
        self.l2_regularization = l2_regularization
        self.bias_l2_regularization = bias_l2_regularization
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.optimizer = optimizer
        self.biases = biases
        self.implicit = implicit
        self.alpha = alpha
        self.negatives = negatives
        self.linear_solver = linear_solver
        self.inner = inner
        self.init_scale = init_scale
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.duplicates = duplicates
        self.width = width
        self.profile = profile
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.runtime = runtime
        self.memory = memory
        self.verbose = verbose

    def save(self, path: str | Path, *, ratings: bool = False) -> None:
        """Write the fitted model to one file (safetensors, no pickle).

        Parameters
        ----------
        path : str or Path
            The file.
        ratings : bool, default False
            Also the values of the ratings, not only which there are: for `explain_recommendation` of users of training,
            and for `partial_fit` of als and ccd.
        """
        check_is_fitted(self)
        persistence.save(self, path, ratings=ratings)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        return cast("Self", persistence.load(cls, path))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = False
        return tags
