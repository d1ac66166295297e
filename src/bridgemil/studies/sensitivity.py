"""How much a setting matters (Appendix F, and whatever the user varies): one setting at a time, the others as usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridgemil import baselines, methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadUse
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.statistics import LEVEL, Comparison, corrected
from bridgemil.studies import drawing, published, scores, truth
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OPTIONS = ("vary", "method")
USUAL: dict[str, list[Any]] = {
    "stage2.retention": [0, 1e-6, 1e-5, 1e-4, 1e-2],
    "stage1.subbag_size": [4, 8, 16],
    "stage1.subbag_pairs": [16, 64, 256],
}
RATIO, AS_USUAL, USUAL_VALUE = "retention_gradient_ratio", "as usual", "the usual value"


Key = tuple[str, str, Any]  # cohort hash, setting and value; no setting and None: everything as usual


def perform(context: StudyContext) -> Findings:
    """Run every value of every setting on every split, and compare each with the usual one."""
    import pandas as pd

    method = context.option("method", "bridgemil")
    vary = _values_to_try(context, method)
    results = _run_all(context, method, vary)
    rows, against = list[dict[str, Any]](), dict[Key, Comparison]()
    for cohort in context.cohorts:
        against |= _compared(cohort, results)
        rows += [row for key, values in vary.items() for row in _rows(context, cohort, key, values, results, against)]
    tables = {"sensitivity": pd.DataFrame(rows)}
    tables |= truth.tables(
        context, {(cohort, f"{key} = {value}" if key else AS_USUAL): r for (cohort, key, value), r in results.items()}
    )
    return Findings(
        f"Sensitivity of {context.title(method)}", _sentences(context, rows, against), tables,
        {"sensitivity": _figure(context, vary, rows, results)},
        footnotes=[
            "One setting is varied at a time; gains are against the usual value on the same subjects, paired.",
            *_also(results),
            "Choosing a value by this table and then reporting the same cohort is selection on test subjects.",
        ],
    )  # fmt: skip


def _values_to_try(context: StudyContext, method: str) -> dict[str, list[Any]]:
    """The values of every setting, the usual one among them; what cannot vary is refused."""
    chosen = context.option("vary", USUAL)
    methods.check(method)
    for key, values in chosen.items():
        if not methods.has_setting(method, key):
            known = ", ".join(_settings_of(context, method)) or "none"
            unasked = "" if context.options.get("vary") else "name a setting with --vary KEY=VALUE,VALUE: "
            raise BadUse(f"{unasked}{method} has no setting {key}; its own: {known}")
        if key in methods.fixed(method):
            raise BadUse(f"{key} is what makes {method}; vary it of bridgemil")
        for value in values:
            if not isinstance(value, str | bool | int | float | None):
                raise BadUse(f"--vary {key}: {value!r} is no number, word, true, false or null")
    completed = {}
    for key, values in chosen.items():
        usual = _usual_value(context, method, key)
        wanted = dict.fromkeys(values)
        if usual is not None and usual not in wanted:  # what the others are compared with stands among them
            wanted = dict.fromkeys(sorted((*wanted, usual), key=_in_order))
        completed[key] = list(wanted)
    return completed


def _in_order(value: Any) -> tuple[int, float, str]:
    """Numbers by their size, then words, then none."""
    if value is None:
        return 2, 0, ""
    return (0, value, "") if isinstance(value, int | float) else (1, 0, value)


def _run_all(context: StudyContext, method: str, vary: Mapping[str, Sequence[Any]]) -> dict[Key, list[Results]]:
    """Results by cohort, setting and value, one a split."""
    planned: list[tuple[Key, Experiment]] = []
    for cohort in context.cohorts:
        for seed in context.split_seeds:
            split = context.split(cohort, seed)
            planned.append(((cohort.hash, "", None), context.experiment(cohort, method, split)))
            planned += [
                ((cohort.hash, key, value), context.experiment(cohort, method, split, changes={key: value}))
                for key, values in vary.items()
                for value in values
            ]
    gathered: dict[Key, list[Results]] = {}
    for (key, _), results in zip(planned, context.perform([made for _, made in planned]), strict=True):
        gathered.setdefault(key, []).append(results)
    return gathered


def _settings_of(context: StudyContext, method: str) -> list[str]:
    """The settings that can vary."""
    members = context.experiment(context.cohorts[0], method).settings.each
    keys = {key for member in members for key in methods.flat(member.model_dump(mode="json")) if "." in key}
    for member in members:
        if not member.is_network:  # whose stored settings leave out what is as usual
            keys |= {f"baseline.{name}" for name in baselines.get(member.method).Settings.model_fields}
    keys -= {"stage1.objective", "stage2.kind"}  # these make the method
    return sorted(key for key in keys if methods.has_setting(method, key) and key not in methods.fixed(method))


def _usual_value(context: StudyContext, method: str, key: str) -> Any:
    """What a setting is where it is not varied; None where no value of it can be named."""
    for member in context.experiment(context.cohorts[0], method).settings.each:
        values = methods.flat(member.model_dump(mode="json", exclude_none=True))
        if key in values:
            return values[key]
    return None


def _also(by_key: Mapping[Key, Sequence[Results]]) -> list[str]:
    """What else a value changes: epochs that are set mean no floor of steps, an aggregator has its own rates."""
    notes = []
    for (cohort, key, value), results in by_key.items():
        before, after = (_values(several[0].settings) for several in (by_key[cohort, "", None], results))
        others = [
            f"{name} from {text(before.get(name))} to {text(after.get(name))}"
            for name in dict.fromkeys((*before, *after))
            if name.rpartition(" ")[2] != key and before.get(name) != after.get(name)
        ]
        if key and others:
            notes.append(f"{key} = {text(value)} also changes {', '.join(others)}.")
    return list(dict.fromkeys(notes))


def _values(settings: methods.Settings) -> dict[str, Any]:
    """Every setting of every member by name; those of an ensemble's members behind the member's name."""
    several = len(settings.each) > 1
    return {
        f"{member.method} {key}" if several else key: value
        for member in settings.each
        for key, value in methods.flat(member.model_dump(mode="json")).items()
    }


def text(value: Any) -> str:
    """A value as the user would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def gradient_ratio(results: Sequence[Results]) -> float | None:
    """Retention's gradient relative to the classification gradient, median over epochs, folds and seeds."""
    import pandas as pd

    curves = [r.curves[RATIO] for r in results if RATIO in r.curves]
    measured = pd.concat(curves).dropna() if curves else pd.Series(dtype=float)
    return float(measured.median()) if len(measured) else None


def _compared(cohort: Cohort, results: Mapping[Key, list[Results]]) -> dict[Key, Comparison]:
    """Every value of a cohort that is not the usual one against it, as one family."""
    usual = results[cohort.hash, "", None]
    others = [
        name for name, r in results.items() if name[0] == cohort.hash and r[0].settings.hash != usual[0].settings.hash
    ]
    found = [scores.compared(results[name], usual, (f"{name[1]} = {text(name[2])}", USUAL_VALUE)) for name in others]
    return dict(zip(others, corrected(found), strict=True))


def _rows(
    context: StudyContext, cohort: Cohort, key: str, values: Sequence[Any], results: Mapping[Key, list[Results]],
    against: Mapping[Key, Comparison],
) -> list[dict[str, Any]]:  # fmt: skip
    """A row a value; where none of them is the usual one, everything as usual stands first."""
    usual = results[cohort.hash, "", None]
    names = [(cohort.hash, key, value) for value in values]
    rows = [_row(context, cohort, name, results[name], against.get(name)) for name in names]
    if not any(row["usual"] for row in rows):
        rows.insert(0, _row(context, cohort, (cohort.hash, key, AS_USUAL), usual, None))
    return rows


def _row(
    context: StudyContext, cohort: Cohort, name: Key, results: list[Results], against: Comparison | None
) -> dict[str, Any]:
    _, key, value = name
    row: dict[str, Any] = {
        "cohort": context.name(cohort),
        "setting": key,
        "value": text(value),
        "usual": against is None,
    }
    row |= scores.score(results) | ({} if against is None else scores.columns(against))
    row["gradient_ratio"] = gradient_ratio(results)
    number = None
    if results[0].settings.method == "bridgemil":
        number = published.number(context, cohort, "sensitivity", key, text(value))
    return row | ({} if number is None else {"paper": number[0], "paper_sd": number[1]})


def _sentences(context: StudyContext, rows: list[dict[str, Any]], against: Mapping[Key, Comparison]) -> list[str]:
    sentences, names = [], {cohort.hash: context.name(cohort) for cohort in context.cohorts}
    for cohort, key in dict.fromkeys((row["cohort"], row["setting"]) for row in rows):
        mine = [row for row in rows if (row["cohort"], row["setting"]) == (cohort, key)]
        best, worst = max(mine, key=lambda r: r["accuracy"]), min(mine, key=lambda r: r["accuracy"])
        compared = [c for (h, setting, _), c in against.items() if (names[h], setting) == (cohort, key)]
        apart = [c.corrected_sentence for c in compared if c.p < LEVEL]
        span = f"{worst['accuracy']:.1f} % ({worst['value']}) to {best['accuracy']:.1f} % ({best['value']})"
        if best["accuracy"] == worst["accuracy"]:
            span = f"{best['accuracy']:.1f} % at every value"
        sentences.append(
            f"{cohort}, {key}: {span}; "
            + (" ".join(apart) if apart else f"no significant difference between any value and {USUAL_VALUE}.")
        )
        ratios = [row for row in mine if row["gradient_ratio"] is not None]
        if key == "stage2.retention" and ratios:
            words = ", ".join(f"{row['value']}: {row['gradient_ratio']:.1e}" for row in ratios)
            sentences.append(
                f"{cohort}: retention's gradient relative to the classification gradient, by weight: {words}."
            )
    return sentences


def _figure(
    context: StudyContext,
    vary: Mapping[str, Sequence[Any]],
    rows: list[dict[str, Any]],
    results: Mapping[Key, list[Results]],
) -> Figure:
    figure, axes = drawing.canvas(len(vary), len(context.cohorts), width=4.4, height=3.6)
    places = iter(axes)
    for cohort in context.cohorts:
        usual = results[cohort.hash, "", None][0]
        level = 100 * metrics.chance(usual.labels)[0]
        for key in vary:
            mine = [row for row in rows if row["cohort"] == context.name(cohort) and row["setting"] == key]
            ax = next(places)
            _draw(ax, mine, level, usual.name)
            ax.set_xlabel(key)
            ax.set_title(f"{context.name(cohort)} (filled: the usual value)", fontsize=9)
    return figure


def _draw(ax: Axes, rows: list[dict[str, Any]], level: float, method: str) -> None:
    style = drawing.look(method)
    for x, row in enumerate(rows):
        ax.plot([x, x], [row["ci95_low"], row["ci95_high"]], color=style["color"], linewidth=2)
        filled = style["color"] if row["usual"] else "white"
        ax.plot(x, row["accuracy"], markersize=8, markerfacecolor=filled, linestyle="none", **style)
        if row["gradient_ratio"] is not None and row["setting"] == "stage2.retention":
            ax.annotate(
                f"gradient\n{row['gradient_ratio']:.0e}", (x, row["ci95_low"]), xytext=(0, -4), fontsize=7,
                textcoords="offset points", ha="center", va="top", color="0.3",
            )  # fmt: skip
    drawing.chance_line(ax, level, named=True)
    ax.set_xticks(range(len(rows)), [row["value"] for row in rows])
    low = min(level, *(row["ci95_low"] for row in rows))
    ax.set(xlim=(-0.6, len(rows) - 0.4), ylim=(max(0, low - 14), None))
    ax.set_ylabel("accuracy of held-out subjects (%)")
