"""Files that the commands write."""
