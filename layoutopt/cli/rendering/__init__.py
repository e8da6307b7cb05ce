"""Tables, summaries, JSON and progress of the commands, as text."""
