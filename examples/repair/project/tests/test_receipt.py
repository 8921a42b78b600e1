"""Receipts of whole baskets."""

import pathlib
import unittest

from till.basket import read_basket
from till.catalog import read_catalog
from till.receipt import Receipt

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


class WholeBasket(unittest.TestCase):
    def setUp(self):
        self.lines = read_basket(DATA / "basket.csv", read_catalog(DATA / "catalog.csv"))

    def test_without_a_coupon(self):
        receipt = Receipt.of(self.lines)
        self.assertEqual(receipt.total, 1998)
        self.assertEqual(receipt.tax(), {7: 109, 19: 53})

    def test_the_total_falls_by_exactly_the_coupon(self):
        for coupon in (1, 99, 100, 101, 1997, 1998):
            with self.subTest(coupon=coupon):
                self.assertEqual(Receipt.of(self.lines, coupon).total, 1998 - coupon)

    def test_the_text_shows_the_total(self):
        self.assertIn("total                   19.98", Receipt.of(self.lines).text())


if __name__ == "__main__":
    unittest.main()
