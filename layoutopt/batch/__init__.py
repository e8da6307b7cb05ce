"""Batches of many models: worker processes of this machine, clusters of Dask and Ray, and the cache of outcomes."""

from layoutopt.batch.clusters import Cluster, Failure, open_cluster

__all__ = ["Cluster", "Failure", "open_cluster"]
