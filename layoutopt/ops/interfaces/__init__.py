"""Interfaces that an op family may implement beside its layout rule, one file each; passes ask a rule by `isinstance`."""
