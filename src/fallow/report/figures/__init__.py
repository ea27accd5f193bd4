"""The figures of a report, made from records: a house style, and one file per kind of figure."""
