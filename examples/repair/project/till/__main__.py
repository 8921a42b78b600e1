"""The command line of the till."""

import argparse
import sys

from till.basket import read_basket
from till.catalog import read_catalog
from till.receipt import Receipt


def main(arguments):
    parser = argparse.ArgumentParser(prog="till", description=__doc__)
    parser.add_argument("catalog")
    parser.add_argument("basket")
    parser.add_argument("--coupon", type=int, default=0, metavar="CENTS")
    options = parser.parse_args(arguments)
    basket = read_basket(options.basket, read_catalog(options.catalog))
    print(Receipt.of(basket, options.coupon).text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
