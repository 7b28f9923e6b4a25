"""DuckDB with a table in memory and one thread: a statement per line in, the number of its rows per line out.

After `rows ` before a statement, its rows: as JSON, each value as a text.
"""

import json
import sys

import duckdb

database = duckdb.connect()
database.execute("SET threads = 1")
database.execute(
    "CREATE TABLE orders AS SELECT * FROM read_csv(?, header = true, types = {'total': 'DECIMAL(12, 2)'})",
    [sys.argv[1]],
)
for statement in sys.stdin:
    wanted = statement.removeprefix("rows ")
    rows = database.execute(wanted).fetchall()
    print(len(rows) if wanted == statement else json.dumps([[str(value) for value in row] for row in rows]), flush=True)
