"""Whole cents in, text or tax out."""


def euros(cents):
    """`1234` as `12.34`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02}"


def tax_within(amount, percent):
    """The tax that `amount` contains, rounded to the nearest cent."""
    whole = 100 + percent
    return (amount * percent * 2 + whole) // (2 * whole)
