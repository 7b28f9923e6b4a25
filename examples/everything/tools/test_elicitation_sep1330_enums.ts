const options = ["option1", "option2", "option3"];
const titled = (noun: string) =>
  ["First", "Second", "Third"].map((title, at) => ({ const: `value${at + 1}`, title: `${title} ${noun}` }));

const schema = {
  type: "object",
  properties: {
    untitledSingle: { type: "string", description: "Select one option", enum: options },
    titledSingle: { type: "string", description: "Select one option with titles", oneOf: titled("Option") },
    legacyEnum: {
      type: "string",
      description: "Select one option (legacy)",
      enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: {
      type: "array",
      description: "Select multiple options",
      minItems: 1,
      maxItems: 3,
      items: { type: "string", enum: options },
    },
    titledMulti: {
      type: "array",
      description: "Select multiple options with titles",
      minItems: 1,
      maxItems: 3,
      items: { anyOf: titled("Choice") },
    },
  },
  required: [],
};

/** Asks with all five kinds of choice */
export default async (_: {}, ctx: Spile.Context) => {
  const message = "Please select options from the enum fields";
  const { action, content = {} } = await ctx.elicit("form", { message, schema });
  return `Elicitation completed: action=${action}, content=${JSON.stringify(content)}`;
};
