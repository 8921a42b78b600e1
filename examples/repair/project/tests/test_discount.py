"""Shares of a discount."""

import unittest

from till.pricing.discount import share_discount


class ShareDiscount(unittest.TestCase):
    def test_even_shares(self):
        self.assertEqual(share_discount(300, [1000, 1000, 1000]), [100, 100, 100])

    def test_shares_follow_the_amounts(self):
        self.assertEqual(share_discount(100, [300, 100]), [75, 25])

    def test_shares_add_up_to_the_discount(self):
        for discount, amounts in [(100, [333, 333, 334]), (1, [5, 5]), (5, [1, 2, 3, 4]), (7, [10**17, 10**17, 1])]:
            with self.subTest(discount=discount, amounts=amounts):
                self.assertEqual(sum(share_discount(discount, amounts)), discount)

    def test_no_share_is_more_than_its_amount(self):
        for discount in range(11):
            shares = share_discount(discount, [1, 2, 3, 4])
            self.assertTrue(all(0 <= share <= amount for share, amount in zip(shares, [1, 2, 3, 4])), shares)

    def test_a_discount_that_does_not_fit_is_refused(self):
        with self.assertRaises(ValueError):
            share_discount(11, [5, 5])

    def test_free_articles(self):
        self.assertEqual(share_discount(0, [0, 0]), [0, 0])


if __name__ == "__main__":
    unittest.main()
