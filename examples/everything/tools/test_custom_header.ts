export const metadata = { description: "Tests a parameter that is mirrored in a header" };

export const schema = {
  input: {
    type: "object",
    properties: {
      value: { type: "string", description: "Also sent as Mcp-Param-Value", "x-mcp-header": "Value" },
    },
  },
};

export default ({ value = "" }) => `Custom header value: \`${value}\``;
