import { askName, question, textOf } from "../lib/forms";

/** Asks three things at once */
export default async (_: {}, ctx: Spile.Context) => {
  const [name, greeting, roots] = await Promise.all([
    askName(ctx),
    ctx.sample("greeting", question("Generate a greeting", 50)),
    ctx.roots("client_roots"),
  ]);
  return `Name: ${name}; Greeting: ${textOf(greeting)}; Roots: ${roots.length}`;
};
