"""WebShop: find the described product in a shop of many, choose its options and buy it."""
