// The tool of peer_tool.ts on the TypeScript SDK, version 2, for clients of 2026-07-28, with JSON responses.
import { createServer } from "node:http";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { z } from "zod";

const PLANS = ["free", "emerald", "ruby"];
const inputSchema = z.object({ email: z.string() });
const outputSchema = z.object({ email: z.string(), name: z.string(), plan: z.string() });
// The SDK makes a server for each request, because a request of 2026-07-28 stands alone.
const newServer = () => {
  const server = new McpServer({ name: "ts-sdk-2", version: "1.0.0" });
  server.registerTool(
    "lookup_customer",
    { description: "Look up a customer by email.", inputSchema, outputSchema },
    ({ email }) => {
      const number = Number(email.slice(4, 8));
      const found = { email, name: `Customer ${number}`, plan: PLANS[number % PLANS.length] };
      return { content: [{ type: "text", text: JSON.stringify(found) }], structuredContent: found };
    },
  );
  return server;
};

const [host, port] = process.argv[process.argv.indexOf("--bind") + 1].split(":");
const http = createServer(toNodeHandler(createMcpHandler(newServer, { legacy: "reject" })));
// Connections stay open between the rounds.
http.keepAliveTimeout = 0;
http.listen(Number(port), host);
