const schema = {
  type: "object",
  properties: {
    name: { type: "string", description: "User name", default: "John Doe" },
    age: { type: "integer", description: "User age", default: 30 },
    score: { type: "number", description: "User score", default: 95.5 },
    status: {
      type: "string",
      description: "User status",
      enum: ["active", "inactive", "pending"],
      default: "active",
    },
    verified: { type: "boolean", description: "Verification status", default: true },
  },
  required: [],
};

/** Asks with a default for every primitive type */
export default async (_: {}, ctx: Spile.Context) => {
  const message = "Please review and update the form fields with defaults";
  const { action, content = {} } = await ctx.elicit("form", { message, schema });
  return `Elicitation completed: action=${action}, content=${JSON.stringify(content)}`;
};
