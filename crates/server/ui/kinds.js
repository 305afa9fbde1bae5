// Whether files are a picture or a clip.

const count = (bytes, [a, b, c]) => {
  let found = 0;
  for (let at = bytes.indexOf(a); at >= 0; at = bytes.indexOf(a, at + 1)) {
    if (bytes[at + 1] === b && bytes[at + 2] === c) found += 1;
  }
  return found;
};

const text = (bytes, from, length) => String.fromCharCode(...bytes.slice(from, from + length));

/** Whether a GIF, PNG or WebP moves. */
function isAnimated(bytes) {
  const start = text(bytes, 0, 1024);
  // A graphic control extension stands before each picture of an animated GIF.
  if (start.startsWith("GIF8")) return count(bytes, [0x21, 0xf9, 0x04]) > 1;
  if (start.slice(1, 4) === "PNG") return start.includes("acTL");
  return start.startsWith("RIFF") && start.slice(8, 12) === "WEBP" && start.includes("ANIM");
}

/** Whether files are a clip: several pictures, an animation, an archive or a video. */
export async function isClip(files) {
  if (files.length > 1) return true;
  const [file] = files;
  if (file.type.startsWith("video/") || /zip/.test(file.type) || /\.(zip|mp4|mov|mkv|webm|avi)$/i.test(file.name ?? "")) return true;
  if (!/^image\/(gif|png|apng|webp)$/.test(file.type)) return false;
  return isAnimated(new Uint8Array(await file.arrayBuffer()));
}

/** Pictures in the order of their names, numbers by value. */
export function inOrder(files) {
  const { compare } = new Intl.Collator("en", { numeric: true });
  return [...files].sort((one, other) => compare(one.name, other.name));
}
