"""Interfaces that a layout rule may implement in addition to `LayoutRule`, one file each; passes test for them."""
