"""Batches of many models: tasks in worker processes of this machine, or in a cluster of Dask or Ray."""

from layoutopt.batch.cluster import Cluster, Failure, open_cluster

__all__ = ["Cluster", "Failure", "open_cluster"]
