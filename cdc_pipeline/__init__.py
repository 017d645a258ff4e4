"""cdc_pipeline: MySQL and MariaDB tables kept as Delta Lake tables by bounded, scheduled capture runs.

Importing the package is cheap: neither Dagster, Spark nor numba is loaded before a function that needs it is called.
"""

__version__ = "0.1.0"
