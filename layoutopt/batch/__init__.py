"""Batches of many models: worker processes of this machine, clusters of Dask and Ray, and the cache of outcomes."""

from layoutopt.batch.clusters import Failure, open_cluster
