"""The judge's tests, one module each; `registry` lists them."""
