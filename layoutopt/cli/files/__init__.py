"""Files that the commands write: models, pictures, dumps of the graph."""
