export const metadata = { task: "optional" };

/** Ends in a protocol error */
export default () => {
  throw new McpError(-32603, "the job ended in a protocol error, as it always does");
};
