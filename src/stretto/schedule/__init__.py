"""Schedules: which jobs of a program run together next.

The ready schedules are auto, cyclic, random, prioritised, clustered, rotation and working_sets. Their parts are
delta_squared, correlation, correlation_graph, spectral_radius and safe_width. Schedule and Chooser are the base classes
for schedules of your own.
"""

from .automatic.auto import auto
from .clustered import clustered, correlation_graph
from .columns import correlation
from .cyclic import cyclic
from .prioritised import delta_squared, prioritised
from .shotgun import random
from .spec import Chooser, Schedule
from .turns import rotation
from .width import safe_width, spectral_radius
from .working_sets import working_sets

__all__ = [
    "Chooser",
    "Schedule",
    "auto",
    "clustered",
    "correlation",
    "correlation_graph",
    "cyclic",
    "delta_squared",
    "prioritised",
    "random",
    "rotation",
    "safe_width",
    "spectral_radius",
    "working_sets",
]
