"""Listeners that send the events of a run to other programs: TensorBoard, MLflow, Weights & Biases, Optuna, Prometheus.

session = st.Session(listeners=[st.listeners.TensorBoard("logs/first")])
"""

from .mlflow_run import MLflow
from .optuna_pruning import OptunaPruning
from .prometheus import prometheus_text
from .tensorboard import TensorBoard
from .wandb_run import WeightsAndBiases

__all__ = ["MLflow", "OptunaPruning", "TensorBoard", "WeightsAndBiases", "prometheus_text"]
