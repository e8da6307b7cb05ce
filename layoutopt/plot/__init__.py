"""SVG drawings: the memory of a tensor in a format, and the plan of a model.

figure = draw_memory(Layout.packed(lookup("NCHW4c"), (1, 6, 3, 4)))
figure.save_svg("nchw4c.svg")
"""

from layoutopt.plot.memory import draw_memory
from layoutopt.plot.plan import draw_plan

__all__ = ["draw_memory", "draw_plan"]
