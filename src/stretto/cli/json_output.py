"""`--json`: one JSON document on stdout for each command, and everything else on stderr.

A command hands its facts to `answer`; the root of the command tree prints them when the command ends. `DOCUMENTS` is
the schema: the fields of each command's document, each with its meaning. Every document begins with `command` and
`schema`, and that of a command that failed has `error`. Numbers that are not finite are null.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

SCHEMA = 1  # a field that is renamed, removed or changes its meaning raises it; a new field does not
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document; all else goes to stderr.")]

_TRAINED = {
    "run": "folder of the run record",
    "status": "done, early (a rule stopped it), stopped (Ctrl-C) or complete (there was nothing left to train)",
    "model": "file of the model, or null",
    "epochs": "epochs done",
    "seconds": "wall time",
    "fingerprint": "of the plan: same fingerprint, same bits",
    "held_out": "share of the data that was held out",
    "metrics": "name → value after the last epoch",
    "scores": "name → value on the part held out, by linear models",
    "files": "names of the files in the folder",
}
DOCUMENTS: dict[str, dict[str, str]] = {
    "train mf": _TRAINED,
    "train lda": _TRAINED,
    "train lasso": _TRAINED,
    "train logistic": _TRAINED,
    "resume": _TRAINED,
    "recommend": {
        "kind": "recommendations, similar items, similar users, why, or file",
        "results": "for each id typed: `for`, and `found` with id and score, the best first",
        "why": "parts of one score: mean, item_bias, rest and contributions; or null",
        "file": "the file of --to, or null",
        "users": "users that were served",
        "items": "items written or shown",
    },
    "evaluate": {
        "metrics": "a row each: name, value, low and high end of its confidence interval, …",
        "note": "what was measured, in words",
        "file": "the file of --to, or null",
    },
    "topics": {
        "topics": "a row each: topic, tokens, name, words, weights",
        "periods": "with --by a row each: period, documents, shares; else null",
        "files": "files that were written",
    },
    "sweep": {
        "folder": "of the results",
        "files": "names of the files in it",
        "table": "a row for each number of topics, as in sweep.csv",
        "best": "the number of topics to take",
        "note": "how it was chosen, in words",
    },
    "infer": {
        "file": "where the shares are",
        "documents": "how many",
        "topics": "how many",
        "seconds": "time of the inference",
        "perplexity": "with --perplexity, else null",
    },
    "runs": {"runs": "a row each: name, status, times, fingerprint, config and `last`, the newest numbers"},
    "compare": {"differences": "setting → run → value", "runs": "run → what `runs` has for it"},
    "dashboard": {"url": "link of the page; printed when the page is up", "runs": "names of the runs on it"},
    "report": {"file": "the HTML file", "png": "the picture, or null", "runs": "names of the runs in it"},
    "info": {
        "file": "as typed",
        "ok": "whether training takes the file as it is",
        "format": "what the file is",
        "shape": "rows and columns",
        "records": "how many",
        "problems": "a row each: line, kind, problem, remedy",
        "text": "what is printed without --json",
    },
    "generate": {
        "file": "as typed",
        "bytes": "its size",
        "shape": "rows and columns",
        "entries": "ratings, or entries of documents",
        "tokens": "of a corpus, else null",
    },
    "explain": {
        "fingerprint": "of the plan: same fingerprint, same bits",
        "text": "what is printed without --json",
        "file": "the picture of --draw, or null",
    },
    "simulate": {
        "job": "the job file",
        "runs": "a row each: values of the sweeps, clocks, seconds, sent (bytes), computing, objective, to_target, "
        "restarts",
        "files": "files that were written",
    },
    "warmup": {"folder": "of the compiled kernels", "compiled": "false where all were there", "seconds": "wall time"},
    "tour": {"stops": "a row each: number, title, seconds, facts (name → value) and says"},
}

_state: dict[str, Any] = {"wanted": False, "document": None, "printed": False}


def begin(wanted: bool) -> None:
    """A command line is about to run. wanted: it has --json."""
    _state.update(wanted=wanted, document=None, printed=False)


def wanted() -> bool:
    """Whether stdout is for one JSON document."""
    return bool(_state["wanted"])


def answer(**fields: Any) -> None:
    """What the running command found out; without --json, nothing happens."""
    _state["document"] = {**(_state["document"] or {}), **fields}


def close(command: str, error: Mapping[str, Any] | None = None) -> None:
    """Print the document of the command line, once."""
    if not wanted() or _state["printed"] or (_state["document"] is None and error is None):
        return
    import msgspec

    from stretto.observe.log import to_json

    fields = dict.fromkeys(DOCUMENTS.get(command, ())) if error is None else {}
    document = {"command": command, "schema": SCHEMA, **fields, **(_state["document"] or {})}
    if error is not None:
        document["error"] = dict(error)
    typer.echo(msgspec.json.format(to_json(document), indent=1).decode())
    _state["printed"] = True


def with_json(function: Callable[..., None]) -> Callable[..., None]:
    """The command with the option `--json`, which the root of the command tree has seen already."""
    hints = get_type_hints(function, include_extras=True)
    own = [one.replace(annotation=hints[one.name]) for one in inspect.signature(function).parameters.values()]
    json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)

    def command(as_json: bool = False, **asked: Any) -> None:
        function(**asked)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature([*own, json])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*own, json)}
    return command
