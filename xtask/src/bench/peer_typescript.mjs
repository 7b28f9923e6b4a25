// The tool of peer_tool.ts on the TypeScript SDK, version 1, with sessions, and with JSON
// responses, which cost it less than streams.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const PLANS = ["free", "emerald", "ruby"];
const newServer = () => {
  const server = new McpServer({ name: "ts-sdk", version: "1.0.0" });
  const customer = { email: z.string(), name: z.string(), plan: z.string() };
  server.registerTool(
    "lookup_customer",
    { description: "Look up a customer by email.", inputSchema: { email: z.string() }, outputSchema: customer },
    ({ email }) => {
      const number = Number(email.slice(4, 8));
      const found = { email, name: `Customer ${number}`, plan: PLANS[number % PLANS.length] };
      return { content: [{ type: "text", text: JSON.stringify(found) }], structuredContent: found };
    },
  );
  return server;
};

const transports = new Map();
const [host, port] = process.argv[process.argv.indexOf("--bind") + 1].split(":");
const http = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", async () => {
    const body = JSON.parse(Buffer.concat(chunks).toString() || "null");
    let transport = transports.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: (id) => transports.set(id, transport),
      });
      await newServer().connect(transport);
    }
    await transport.handleRequest(request, response, body);
  });
});
// Connections stay open between the rounds.
http.keepAliveTimeout = 0;
http.listen(Number(port), host);
