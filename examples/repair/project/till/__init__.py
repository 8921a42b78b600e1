"""A small till: catalogue, basket, coupon, receipt."""
