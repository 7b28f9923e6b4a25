import { image } from "../lib/media";

/** Tests image content response */
export default () => ({ content: [image] });
