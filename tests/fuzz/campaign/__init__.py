"""The campaign: all sources of random examples under one command, `python benchmarks/campaign.py`.

| module | contents |
|---|---|
| `parts.py` | `PARTS`, the table of sources of examples |
| `part.py` | `Part`: how a source makes, examines and keeps an example |
| `isolation.py` | examples in processes of their own, with limits |
| `server.py`, `client.py` | a process per worker that prepares a part once, and the function that workers call |
| `pending.py` | the seeds that are not done, by shard |
| `rounds.py` | rounds of tasks over the cluster until the time is over |
| `store.py` | the JSON-lines file of outcomes |
| `report.py` | the report as HTML and Markdown |
"""
