"""Deprecated names work, warn once for each line of the user's code, and are gone in the version that was announced."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone

import stretto
from stretto.deprecation import current_parameters, deprecated_attribute, deprecated_names, deprecated_parameter

SRC = Path(stretto.__file__).parent


class Model(BaseEstimator):  # type: ignore[misc]
    """An estimator two of whose parameters, and one attribute, have new names."""

    @deprecated_parameter("rank", "n_components", removed_in="9.0")
    @deprecated_parameter("epochs", "max_iter", removed_in="9.0")
    def __init__(self, n_components: int = 8, *, max_iter: int = 10) -> None:
        self.n_components, self.max_iter = n_components, max_iter

    row_factors_ = deprecated_attribute("user_factors_", removed_in="9.0")

    def fit(self) -> Model:
        self.user_factors_ = [self.n_components]
        return self

    def set_params(self, **params: Any) -> Model:
        super().set_params(**current_parameters(type(self).__init__, params))
        return self


def line_here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def test_an_old_parameter_is_passed_under_its_new_name() -> None:
    with pytest.warns(
        FutureWarning, match=r"^Model\(rank=…\) is deprecated .* Stretto 9\.0; use n_components=… instead$"
    ):
        model = Model(rank=3)  # type: ignore[call-arg]
    assert (model.n_components, model.max_iter) == (3, 10)
    with pytest.warns(FutureWarning) as caught:
        model = Model(rank=4, epochs=5)  # type: ignore[call-arg]
    assert (model.n_components, model.max_iter, len(caught)) == (4, 5, 2)


def test_new_names_and_positions_do_not_warn() -> None:
    assert Model(3, max_iter=2).n_components == 3  # warnings are errors here


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^Model\(\) got both rank= and n_components=.*; give n_components= only$"):
        Model(rank=3, n_components=3)  # type: ignore[call-arg]
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="multiple values"):
        Model(3, rank=3)  # type: ignore[call-arg]


def test_a_word_that_never_was_a_parameter_is_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ranks'"):
        Model(ranks=3)  # type: ignore[call-arg]


def test_scikit_learn_sees_the_new_names_alone() -> None:
    assert list(inspect.signature(Model).parameters) == ["n_components", "max_iter"]
    with pytest.warns(FutureWarning):
        model = Model(rank=3)  # type: ignore[call-arg]
    assert clone(model).get_params() == {"n_components": 3, "max_iter": 10}
    with pytest.warns(FutureWarning, match="epochs"):
        assert model.set_params(epochs=7, n_components=2).get_params() == {"n_components": 2, "max_iter": 7}
    assert current_parameters(len, {"rank": 1}) == {"rank": 1}


def test_the_warning_names_the_line_of_the_user() -> None:
    with pytest.warns(FutureWarning) as caught:
        Model(rank=3), (line := line_here())  # type: ignore[call-arg]
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_one_warning_for_each_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for rank in range(3):
            Model(rank=rank)  # type: ignore[call-arg]
        Model(rank=3)  # type: ignore[call-arg]
    assert len(caught) == 2
    assert len({warning.lineno for warning in caught}) == 2


def test_an_old_attribute_is_read_from_the_new_one() -> None:
    model = Model(3)
    with pytest.raises(AttributeError, match="user_factors_"):  # not fitted: no warning
        model.row_factors_  # noqa: B018
    assert not hasattr(model, "row_factors_")
    model.fit()
    message = r"^Model\.row_factors_ is deprecated .*; use user_factors_ instead$"
    with pytest.warns(FutureWarning, match=message) as caught:
        assert [model.row_factors_, line := line_here()] == [[3], line]
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    assert isinstance(Model.row_factors_, deprecated_attribute)


def test_an_old_name_of_a_module_leads_to_the_new_one() -> None:
    lookup = deprecated_names("stretto", {"Crash": "stretto.runtime.simulated.faults:Crash"}, removed_in="9.0")
    message = r"^stretto\.Crash is .*; use stretto\.runtime\.simulated\.faults\.Crash instead$"
    with pytest.warns(FutureWarning, match=message):
        assert lookup("Crash").__name__ == "Crash"
    with pytest.raises(AttributeError, match="module 'stretto' has no attribute 'Crush'"):
        lookup("Crush")


def test_importing_an_old_name_warns_once_where_it_is_imported(tmp_path: Path) -> None:
    """`from package import name` goes through frames of Python's own import machinery, and asks twice."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from stretto.deprecation import deprecated_names\n"
        "__getattr__ = deprecated_names('package', {'old': 'math:pi'}, removed_in='9.0')\n"
    )
    script = tmp_path / "script.py"
    script.write_text("import package\n\nfrom package import old\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert re.findall(r"^(.*):(\d+): FutureWarning: package\.old is deprecated", done.stderr, re.MULTILINE) == [
        (str(script), "3")
    ]


def test_nothing_outlives_the_version_that_removes_it() -> None:
    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    for path in SRC.rglob("*.py"):
        if path.name != "deprecation.py":
            for version in re.findall(r"removed_in=\"([\d.]+)\"", path.read_text(encoding="utf-8")):
                assert number(version) > number(stretto.__version__), f"{path}: remove what was to go in {version}"
