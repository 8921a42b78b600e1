"""Articles and their prices."""

import csv
from dataclasses import dataclass


@dataclass(frozen=True)
class Article:
    key: str
    title: str
    price: int
    tax_percent: int


def read_catalog(path):
    """The articles of a CSV file by key."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["article"]: Article(row["article"], row["title"], int(row["price_cents"]), int(row["tax_percent"]))
        for row in rows
    }
