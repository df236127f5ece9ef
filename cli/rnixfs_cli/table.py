"""Text tables: columns as wide as their texts, made to fit where a person looks."""

from collections.abc import Collection, Sequence

from rnixfs_cli.screen import cells, fit

GAP = "  "
LEAST = 8  # columns that a cell keeps when a table is made narrower


def layout(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], width: int | None
) -> list[str]:
    """The lines of a table, the header first.

    Args:
        header: the names of the columns.
        rows: the cells, each of one line.
        right: names of the columns whose texts stand to the right, as numbers do.
        width: columns of the terminal, to which the widest texts are cut; None for no limit.
    """
    widths = [max(map(cells, column)) for column in zip(header, *rows, strict=True)]
    if width is not None:
        widths = _narrowed(widths, width - len(GAP) * (len(header) - 1))
    sides = [name in right for name in header]
    lines = [_line(row, widths, sides) for row in (header, *rows)]
    return lines if width is None else [fit(line, width) for line in lines]


def _narrowed(widths: list[int], room: int) -> list[int]:
    """Take from the widest column until all of them fit, or none can give more."""
    narrowed = [min(width, max(room, LEAST)) for width in widths]
    while sum(narrowed) > room and (widest := max(narrowed)) > LEAST:
        narrowed[narrowed.index(widest)] -= 1
    return narrowed


def _line(row: Sequence[str], widths: list[int], sides: list[bool]) -> str:
    return GAP.join(map(_padded, row, widths, sides)).rstrip()


def _padded(text: str, width: int, right: bool) -> str:
    shown = fit(text, width)
    blanks = " " * (width - cells(shown))
    return blanks + shown if right else shown + blanks
