"""Parts of the package that users do not import."""
