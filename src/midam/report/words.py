"""Names and numbers as figures and pages show them."""


def shortened(name: str, limit: int) -> str:
    """Name of at most `limit` characters, without its middle: names often differ at the end. Nothing below 4.

    Examples
    --------
    >>> shortened("north_clinic_scan_07", 10).split("\N{HORIZONTAL ELLIPSIS}"), shortened("scan_07", 10)
    (['nort', 'an_07'], 'scan_07')
    """
    if len(name) <= limit:
        return name
    return f"{name[: limit // 2 - 1]}\N{HORIZONTAL ELLIPSIS}{name[-(limit - limit // 2) :]}" if limit > 3 else ""


def signed(value: float, form: str = ".3g") -> str:
    """A number with a true minus sign.

    Examples
    --------
    >>> signed(-0.25) == "\N{MINUS SIGN}0.25", signed(0.25, "+.3g")
    (True, '+0.25')
    """
    return f"{value:{form}}".replace("-", "\N{MINUS SIGN}")
