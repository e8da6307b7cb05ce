"""Names from files as text that a terminal, a page or an XML document can contain."""


def printable(text: str, kept: str = "") -> str:
    """The text with control characters, marks of text direction and lone surrogates replaced, except those in `kept`."""
    return "".join(char if char.isprintable() or char in kept else "\N{REPLACEMENT CHARACTER}" for char in text)
