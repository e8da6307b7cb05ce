"""Gates: checks of optimised models against budgets and a baseline, for continuous integration.

    Report -> Numbers -> findings -> GateReport -> JUnit, GitHub annotations

All functions here are pure; `layoutopt.cli` plans the models and writes the files.
"""
