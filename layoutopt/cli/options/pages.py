"""Help text of the option that writes pages."""

PAGE_HELP = "Write a page for a browser: the graph before and after, with formats, times and reasons."

__all__ = ["PAGE_HELP"]
