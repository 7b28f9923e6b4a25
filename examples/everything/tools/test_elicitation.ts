import { form } from "../lib/forms";

type Arguments = {
  /** The message to show the user */
  message: string;
};

const CONTACT = form({
  username: { type: "string", description: "User's response" },
  email: { type: "string", description: "User's email address" },
});

/** Asks the user for a name and an address */
export default async ({ message }: Arguments, ctx: Spile.Context) => {
  const { action, content = {} } = await ctx.elicit("form", { message, schema: CONTACT });
  return `User response: action=${action}, content=${JSON.stringify(content)}`;
};
