"""Suffixes of files with a table."""

TEXT_FILES = (".csv", ".tsv")
EXCEL_FILES = (".xlsx", ".xlsm")
PARQUET_FILES = (".parquet", ".pq")
FEATHER_FILES = (".feather", ".arrow", ".ipc")
TABLES = (*TEXT_FILES, *PARQUET_FILES, *FEATHER_FILES, *EXCEL_FILES)
