import { askName } from "../lib/forms";

/** Asks for a name */
export default async (_: {}, ctx: Spile.Context) => `Hello, ${await askName(ctx)}!`;
