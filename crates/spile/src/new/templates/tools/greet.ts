// A tool that asks its user. `await ctx.elicit(…)` works with every client that can show a form.

export const metadata = { title: "Greet", description: "Greets someone by name, and asks for the name if none is given." };

export const schema = {
  input: { type: "object", properties: { name: { type: "string" } } },
  output: { type: "object", properties: { greeting: { type: "string" } }, required: ["greeting"] },
};

export default async function greet({ name }: { name?: string }, ctx: Spile.Context) {
  if (name === undefined) {
    const answer = await ctx.elicit<{ name: string }>("name", {
      message: "Whom shall I greet?",
      schema: { type: "object", properties: { name: { type: "string", minLength: 1 } }, required: ["name"] },
    });
    if (answer.action !== "accept") return { greeting: "Hello, whoever you are." };
    name = answer.content.name;
  }
  ctx.log.info(`greeting ${name.length} characters`);
  return { greeting: `Hello, ${name}.` };
}
