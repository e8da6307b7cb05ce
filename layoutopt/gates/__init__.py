"""Gates: checks of optimised models against budgets and a baseline, for continuous integration.

    Report, remaining moves -> Numbers -> findings -> GateReport -> JUnit, SARIF, GitHub annotations

All functions here are pure; `layoutopt.cli` plans the models and writes the files.
"""

from layoutopt.gates.baseline import Baseline, BaselineEntry, model_key, read_baseline, read_old_baseline
from layoutopt.gates.budgets import Budgets, BudgetValue, budgets_of
from layoutopt.gates.checks import SpeedUp, check_baseline, check_budgets, remaining_findings
from layoutopt.gates.findings import DESCRIPTIONS, Finding, Rule
from layoutopt.gates.gate_report import GateReport, ModelResult, Status, budget_values, failed_model, status_of
from layoutopt.gates.numbers import Numbers, measured_speed_up, numbers_of, reason_not_measured

__all__ = [
    "DESCRIPTIONS",
    "Baseline",
    "BaselineEntry",
    "BudgetValue",
    "Budgets",
    "Finding",
    "GateReport",
    "ModelResult",
    "Numbers",
    "Rule",
    "SpeedUp",
    "Status",
    "budget_values",
    "budgets_of",
    "check_baseline",
    "check_budgets",
    "failed_model",
    "measured_speed_up",
    "model_key",
    "numbers_of",
    "read_baseline",
    "read_old_baseline",
    "reason_not_measured",
    "remaining_findings",
    "status_of",
]
