"""`optimize`: which models are read, where the results are written, and the run of one model or of several."""
