"""Exporters: the results of `ci` as JUnit XML, as SARIF, and as annotations and a summary for GitHub."""
