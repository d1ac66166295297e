"""The methods, recipes and ablations as data, and the settings of a run.

A network's settings are the defaults, changed by the method, then by the recipe, the budget and the user. A baseline
has settings of its own, and neither backbone, recipe nor budget.
"""

from bridgemil.methods.registry import (
    ABLATIONS,
    BACKBONE,
    BUDGET,
    JOIN,
    METHOD,
    METHODS,
    PAPER,
    PRETRAIN_ON,
    REFERENCE,
    Method,
    ablations,
    budgets,
    check,
    colour,
    entry,
    fixed,
    has_setting,
    is_senseless,
    names,
    order,
    recipe_for,
    recipes,
    refuse_pretraining,
    shares,
)
from bridgemil.methods.resolve import changed_from_budget, flat, for_cohort, settings
from bridgemil.methods.run_settings import Settings
from bridgemil.user_code import short_name

__all__ = [
    "ABLATIONS", "BACKBONE", "BUDGET", "JOIN", "METHOD", "METHODS", "PAPER", "PRETRAIN_ON", "REFERENCE",
    "Method", "Settings", "ablations", "budgets", "changed_from_budget", "check", "colour", "entry", "fixed", "flat",
    "for_cohort", "has_setting", "is_senseless", "names", "order", "recipe_for", "recipes",
    "refuse_pretraining", "settings", "shares", "short_name",
]  # fmt: skip
