"""Numbers as people write them."""


def plural(count: int, thing: str) -> str:
    """1 piece, 2 pieces, 1,000 pieces."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
