/** Tests error response handling */
export default () => {
  throw new Error("This tool intentionally returns an error for testing");
};
