import { image } from "../lib/media";

/** Tests text, image and resource in one response */
export default () => ({
  content: [
    { type: "text", text: "Multiple content types test:" },
    image,
    {
      type: "resource",
      resource: {
        uri: "test://mixed-content-resource",
        mimeType: "application/json",
        text: JSON.stringify({ test: "data", value: 123 }),
      },
    },
  ],
});
