"""Type inference: element types, shapes and symbolic extents of the values of a graph."""
