"""What runs together next. `st.schedule` holds the ready schedules of programs:

auto, cyclic, random, prioritised, clustered, rotation, working_sets      and what they are made of: delta_squared,
correlation, correlation_graph, spectral_radius, safe_width; Schedule and Chooser, to write one's own
"""

from .automatic.auto import auto as auto
from .clustered import clustered as clustered
from .clustered import correlation_graph as correlation_graph
from .columns import correlation as correlation
from .cyclic import cyclic as cyclic
from .prioritised import delta_squared as delta_squared
from .prioritised import prioritised as prioritised
from .shotgun import random as random
from .spec import Chooser as Chooser
from .spec import Schedule as Schedule
from .turns import rotation as rotation
from .width import safe_width as safe_width
from .width import spectral_radius as spectral_radius
from .working_sets import working_sets as working_sets
