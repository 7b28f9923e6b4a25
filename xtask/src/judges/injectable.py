"""A tool of an MCP server that is injectable on purpose: what sqlmap must find, so that its silence about Spile means something.

Prints the port it listens on, and answers until it is ended.
"""

import http.server
import json
import sqlite3

DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.executescript(
    "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT);"
    "INSERT INTO people VALUES (1, 'x'), (2, 'Ada'), (3, 'Bea');"
)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = call["params"]["arguments"]["name"]
        try:
            rows = DATABASE.execute(f"SELECT id, name FROM people WHERE name = '{name}'").fetchall()
            result = {"content": [{"type": "text", "text": json.dumps(rows)}]}
        except (sqlite3.Error, sqlite3.Warning):
            result = {"content": [{"type": "text", "text": "the call failed"}], "isError": True}
        body = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
