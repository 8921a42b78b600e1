"""What a customer buys."""

import csv
from dataclasses import dataclass

from till.catalog import Article


@dataclass(frozen=True)
class Line:
    article: Article
    count: int

    @property
    def amount(self):
        """The price of the line before any coupon, in cents."""
        return self.article.price * self.count


def read_basket(path, catalog):
    """The lines of a CSV file; an unknown article is an error that names it."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for row in rows:
        if row["article"] not in catalog:
            raise ValueError(f"no article {row['article']!r} in the catalogue")
        lines.append(Line(catalog[row["article"]], int(row["count"])))
    return lines
