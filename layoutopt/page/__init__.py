"""A run of `optimize` as a page: one HTML file that needs no network, with the graph before and after planning.

original = OriginalGraph(hardware, runtime)
result = optimize(..., watch=original, sizes_found=original.set_sizes)
text = page_html(result.report, original.graph, original.planned(result.graph, result.report))
"""

from layoutopt.page.document import page_html
from layoutopt.page.graphs import OriginalGraph
