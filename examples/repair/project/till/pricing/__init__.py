"""Amounts of money and how they are parted."""
