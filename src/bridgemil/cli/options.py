"""Options that several verbs share, each declared once, and parsing of their values."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from bridgemil import backbones, methods

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort

METHOD, BACKBONE, BUDGET = methods.METHOD, methods.BACKBONE, methods.BUDGET
ALL_METHODS = ",".join(methods.order(ablations=False))
METHODS = (
    f"{', '.join(f'{name} ({methods.entry(name).description})' for name in methods.names())}; an ablation "
    f"({', '.join(methods.ablations())}); a scikit-learn pipeline, path/to/file.py:NAME; or several joined by +, an "
    "ensemble."
)
BACKBONES = (
    f"{backbones.BACKBONES.describe()}, braindecode:MODEL, spd_learn:MODEL; or user code, "
    "path/to/file.py:NAME or package.module:NAME."
)


def option(*flags: str, panel: str | None = None, **declared: Any) -> Any:
    """A typer option in a panel of the help text."""
    return typer.Option(*flags, rich_help_panel=panel, **declared)


FOLDS, RUNNING, CLINICAL = "Folds", "Execution", "Clinical metrics"
# What to evaluate or train
CohortFolder = Annotated[Path, typer.Argument(help="Cohort folder.", metavar="COHORT")]
CohortFolders = Annotated[list[Path], typer.Argument(help="Cohort folders.", metavar="COHORT")]
RunsFolder = Annotated[Path, typer.Argument(help="Folder of runs, from `benchmark` or `evaluate`.", metavar="RUNS")]
Backbone = Annotated[str, option(help=BACKBONES)]
Recipe = Annotated[str | None, option(help="Optimiser: paper or ours.  [default: ours; paper with budget paper]")]
Budget = Annotated[str, option(help="Training length: paper, laptop or demo.")]
Seeds = Annotated[int, option(min=1, help="Number of seeds; they share one split.")]
Seed = Annotated[int, option(min=0, help="Random seed.")]
Set = Annotated[
    list[str] | None,
    option("--set", help="Change one setting, such as stage1.epochs=5 or backbone_options.depth=3; repeatable."),
]
Out = Annotated[Path, option(help="Folder for the runs; finished runs are reused.")]
AcceptRisk = Annotated[
    list[str] | None,
    option(help="Continue although this check of the quick audit FAILs; recorded in every result.", metavar="NAME"),
]
Json = Annotated[bool, option("--json", help="Print the result as JSON on standard output.")]
Overwrite = Annotated[bool, option("--overwrite", help="Replace another model in OUT.")]
ModelName = Annotated[str | None, option(help="Name of the model.  [default: the folder's name]")]
# Folds
Folds = Annotated[int | None, option(help="Number of folds.  [default: the cohort's]", panel=FOLDS)]
Split = Annotated[Path | None, option(help="Split file, from `bridgemil folds`.", panel=FOLDS)]
Groups = Annotated[str | None, option(help="Keep subjects with one value of this column in one fold.", panel=FOLDS)]
SplitSeed = Annotated[int, option(help="Seed of the assignment of subjects to folds.", panel=FOLDS)]
# Execution
Jobs = Annotated[
    int | None,
    option(min=1, help="Parallel runs.  [default: as many as idle cores, memory or GPUs allow]", panel=RUNNING),
]
Cores = Annotated[int | None, option(min=1, help="Processes.  [default: the available cores]", panel=RUNNING)]
Threads = Annotated[int, option(min=1, help="Threads (Ray: CPUs) per run.", panel=RUNNING)]
Device = Annotated[str, option(help="auto, cpu or cuda.", panel=RUNNING)]
# Clinical metrics
Positive = Annotated[
    str | None,
    option(help="Patient class.  [default: the one not named control, healthy, …]", metavar="CLASS", panel=CLINICAL),
]
OperatingPoint = Annotated[
    str | None,
    option(
        help="argmax, youden, sensitivity=.9 or specificity=.9; the threshold of a fold is chosen on the other folds.  "
        "[default: argmax]",
        panel=CLINICAL,
    ),
]
Prevalence = Annotated[float | None, option(help="Prevalence of patients, for PPV and NPV.", panel=CLINICAL)]
# Models
ModelFolder = Annotated[
    Path,
    typer.Argument(help="Model folder, from `bridgemil train`, or a model of the package: alzheimer.", metavar="MODEL"),
]
Coverage = Annotated[float | None, typer.Option(help="Coverage of the prediction sets.  [default: .9]")]
PredictThreads = Annotated[int | None, typer.Option(min=1, help="Threads.  [default: the available cores]")]
Code = Annotated[str | None, option("--backbone", help="Address of the user code the model was trained with.")]
Clean = Annotated[
    list[str] | None,
    option(help="Function that the training recordings were cleaned by; repeatable, in order.", metavar="FILE.py:NAME"),
]
MONTAGE = "Cap with electrode names of its own: GSN-HydroCel-128, biosemi128, … (MNE's names), or FILE.tsv (from, to)."


class Training(NamedTuple):
    """How every run of ``evaluate``, ``benchmark`` and ``train`` is trained."""

    frozen: Annotated[
        bool,
        option("--frozen", help="Never train the backbone: its embeddings are computed once per window, with the "
               "weights in --set backbone_options.weights=FILE (safetensors, or a torch checkpoint)."),
    ] = False  # fmt: skip
    recipe: Recipe = None
    budget: Budget = BUDGET
    set_: Set = None
    folds: Folds = None
    split: Split = None
    groups: Groups = None
    split_seed: SplitSeed = 0
    pretrain_on: Annotated[
        Path | None,
        option(help="Second cohort whose subjects Stage 1 also learns from, without labels.", metavar="COHORT"),
    ] = None
    accept_risk: AcceptRisk = None

    def protocol(self) -> dict[str, Any]:
        """As arguments of the function that the verb calls."""
        given = self._asdict() | {"settings": settings(self.set_), "accept_risk": self.accept_risk or ()}
        return {name: value for name, value in given.items() if name != "set_"}


class Evaluation(NamedTuple):
    """What ``evaluate`` and ``train`` share beyond that."""

    method: Annotated[str, option(help=METHODS)] = METHOD
    backbone: Backbone = BACKBONE
    bags: Annotated[
        str,
        option(help="subject, or recording: each recording is a bag, and a subject's probability is their mean."),
    ] = "subject"
    device: Device = "auto"
    threads: Threads = 1
    jobs: Jobs = None
    baselines: Annotated[
        bool, option("--baselines/--no-baselines", help="Evaluate the baselines on the same folds.", panel=RUNNING)
    ] = True
    positive: Positive = None
    prevalence: Prevalence = None


class Execution(NamedTuple):
    """On what many runs are done: the fields of ``bridgemil.engine.execute.Where``, in its order."""

    engine: Annotated[str, option(help="local (processes), inline (this process) or ray.", panel=RUNNING)] = "local"
    jobs: Jobs = None
    threads: Threads = 1
    device: Device = "auto"
    gpus_per_run: Annotated[float, option(help="GPUs per run, may be a fraction.", panel=RUNNING)] = 1.0
    address: Annotated[str | None, option(help="The Ray cluster's address.  [default: local]", panel=RUNNING)] = None


class Reading(NamedTuple):
    """How new recordings are read."""

    bad_channels: Annotated[
        str | None, option(help="Flat or bad electrodes: stop or interpolate.  [default: as in training]")
    ] = None
    recorded_reference: Annotated[
        str | None, option(help="Electrode that is itself the recording reference: Cz.  [default: by the BIDS sidecar]")
    ] = None
    montage: Annotated[str | None, option(help=f"{MONTAGE}  [default: as in training]")] = None
    clean: Clean = None

    def given(self) -> dict[str, Any]:
        """What was given, by the name of the argument."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def verb(run: Callable[..., Any]) -> Callable[..., None]:
    """A verb as typer takes it, with the option ``--json``.

    ``run`` prints to the terminal and returns what ``--json`` prints, or a function that computes it; after a finding,
    for which the exit code is 1, the content and True. A parameter whose type is a ``NamedTuple`` becomes one option
    per field. ``progress`` is no option, but False with ``--json``.
    """
    signature, parameters, groups = inspect.signature(run, eval_str=True), [], dict[str, Any]()
    for name, parameter in signature.parameters.items():
        kind: Any = parameter.annotation
        if hasattr(kind, "_field_defaults"):
            groups[name], defaults = kind, kind._field_defaults
            hints = get_type_hints(kind, include_extras=True).items()
            parameters += [parameter.replace(name=own, annotation=hint, default=defaults[own]) for own, hint in hints]
        elif name != "progress":
            parameters.append(parameter)
    as_json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)

    @wraps(run)
    def command(*, json: bool, **given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(*map(given.pop, kind._fields))
        if "progress" in signature.parameters:
            given["progress"] = not json
        with contextlib.redirect_stdout(io.StringIO()) if json else contextlib.nullcontext():
            found = run(**given)
        content, failed = found if isinstance(found, tuple) else (found, False)
        if json:
            print_json(content() if callable(content) else content)
        if failed:
            raise typer.Exit(1)

    command.__signature__ = signature.replace(parameters=[*parameters, as_json])  # type: ignore[attr-defined]
    return command


def names(text: str | None) -> tuple[str, ...] | None:
    """``A,B`` as a tuple; None if the option was not given."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def mapping(text: str | None) -> dict[str, str] | None:
    """``A=AD,C=HC`` as a dict; a name without ``=`` stands for itself."""
    pairs = [part.partition("=") for part in names(text) or ()]
    return None if text is None else {old.strip(): (new if equals else old).strip() for old, equals, new in pairs}


def show(cohort: Cohort, end: str) -> dict[str, Any]:
    """Print the summary of a cohort, and what is next; returns it for ``--json``."""
    from bridgemil.report.terminal import print_summary, summary

    print_summary(cohort)
    typer.echo(f"\n{end}")
    return summary(cohort)


def edge(text: str) -> float | None:
    """A filter edge in Hz; ``none`` switches the filter off."""
    try:
        return None if text.strip().lower() == "none" else float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number in Hz or 'none', got {text!r}") from None


def print_json(content: Any) -> None:
    """One JSON document on standard output."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    typer.echo(json.dumps(content, indent=1, ensure_ascii=not utf8, allow_nan=False))


def settings(pairs: list[str] | None) -> dict[str, Any]:
    """``--set stage1.epochs=5`` as a dict; values are YAML (numbers, true, null, strings)."""
    return {key: _value(key, text) for key, text in _pairs(pairs, "--set", "key=value")}


def values(pairs: list[str] | None, flag: str = "--vary") -> dict[str, list[Any]]:
    """``--vary stage2.retention=0,1e-5`` as a dict of lists."""
    found: dict[str, list[Any]] = {}
    for key, text in _pairs(pairs, flag, "key=value,value"):
        if key in found:
            raise typer.BadParameter(f"{key} is named twice; join its values by commas", param_hint=flag)
        found[key] = [_value(key, part) for part in text.split(",")]
    return found


def _pairs(pairs: list[str] | None, flag: str, form: str) -> Iterator[tuple[str, str]]:
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.strip() or ("," in form and not all(map(str.strip, text.split(",")))):
            raise typer.BadParameter(f"expected {form}; got {pair!r}", param_hint=flag)
        yield key.strip(), text


def _value(key: str, text: str) -> Any:
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # an invalid date, a number of thousands of digits
        raise typer.BadParameter(f"cannot read the value of {f'{key}={text}'!r}") from None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):  # YAML 1.1 reads 1e-5 as a string
            return float(text)
    return value


def numbers(text: str | None, flag: str) -> list[int] | None:
    """``20,50`` as whole numbers above zero; None if the option was not given."""
    parts = names(text)
    if parts is not None and not (parts and all(part.isdecimal() and int(part) for part in parts)):
        raise typer.BadParameter(f"expected whole numbers above zero, comma-separated; got {text!r}", param_hint=flag)
    return None if parts is None else [int(part) for part in parts]
