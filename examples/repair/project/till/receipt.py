"""The receipt: lines, coupon, tax and total."""

from dataclasses import dataclass

from till.pricing.discount import share_discount
from till.pricing.money import euros, tax_within


@dataclass(frozen=True)
class Receipt:
    lines: tuple
    shares: tuple
    coupon: int

    @classmethod
    def of(cls, lines, coupon=0):
        shares = share_discount(coupon, [line.amount for line in lines])
        return cls(tuple(lines), tuple(shares), coupon)

    @property
    def paid(self):
        """What each line really costs."""
        return [line.amount - share for line, share in zip(self.lines, self.shares)]

    @property
    def total(self):
        return sum(self.paid)

    def tax(self):
        """The tax within the paid amounts, by rate."""
        taxed = {}
        for line, paid in zip(self.lines, self.paid):
            rate = line.article.tax_percent
            taxed[rate] = taxed.get(rate, 0) + paid
        return {rate: tax_within(amount, rate) for rate, amount in sorted(taxed.items())}

    def text(self):
        rows = [
            f"{line.count:>3} {line.article.title:<20}{euros(paid):>9}"
            for line, paid in zip(self.lines, self.paid)
        ]
        rows.append(f"    {'total':<20}{euros(self.total):>9}")
        rows.extend(f"    {f'of it {rate} % tax':<20}{euros(tax):>9}" for rate, tax in self.tax().items())
        return "\n".join(rows)
