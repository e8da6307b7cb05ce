"""Help texts of the options that write pages."""

PAGE_HELP = "Write a page for a browser: the graph before and after, with formats, times and reasons."
NODE_DATA_HELP = "Write the estimated time per node of OUT as node data for Model Explorer."

__all__ = ["NODE_DATA_HELP", "PAGE_HELP"]
