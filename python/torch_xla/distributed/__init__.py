"""Loading data to devices and running on several of them."""
