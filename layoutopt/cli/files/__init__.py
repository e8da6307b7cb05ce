"""Files that the commands write: models, figures, dumps of the graph."""
