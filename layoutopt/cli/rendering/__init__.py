"""Output of the commands: tables, summaries, JSON, progress and warnings."""
