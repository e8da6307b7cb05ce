"""The report of `optimize`: its schema, how it is built from the graph, and the stamp of a rewritten model."""
