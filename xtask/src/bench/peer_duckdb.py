"""DuckDB with a table in memory and one thread: a statement per line in, the number of its rows per line out."""

import sys

import duckdb

database = duckdb.connect()
database.execute("SET threads = 1")
database.execute(
    "CREATE TABLE orders AS SELECT * FROM read_csv(?, header = true, types = {'total': 'DECIMAL(12, 2)'})",
    [sys.argv[1]],
)
for statement in sys.stdin:
    print(len(database.execute(statement).fetchall()), flush=True)
