// Keys: on the canvas a cross-hair, everywhere else the commands.

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./view.js").View} view
 * @param {object} commands what the keys do
 */
export function listen(canvas, view, commands) {
  const moveCross = ([dx, dy], isFast) => {
    const { width, height } = view.picture;
    const step = (isFast ? 10 : 1) * Math.max(1, Math.max(width, height) / 200);
    const [x, y] = view.cross ?? [width / 2 - dx * step, height / 2 - dy * step];
    const clamp = (value, most) => Math.min(most - 1, Math.max(0, Math.round(value)));
    view.cross = [clamp(x + dx * step, width), clamp(y + dy * step, height)];
    view.draw();
    commands.cross(view.cross);
  };

  canvas.addEventListener("keydown", (event) => {
    if (!view.picture || event.ctrlKey || event.metaKey || event.altKey) return;
    // In a clip, left and right are frames until the cross-hair is shown.
    const isFrame = commands.isClip() && !view.cross && STEPS[event.key]?.[1] === 0;
    if (STEPS[event.key] && !isFrame) {
      event.preventDefault();
      event.stopPropagation();
      moveCross(STEPS[event.key], event.shiftKey);
    } else if (event.key === "Enter" && view.cross) {
      event.preventDefault();
      event.stopPropagation();
      commands.click(view.cross, event.shiftKey ? 0 : 1);
    }
  });

  const plain = {
    n: "next", Enter: "next", Backspace: "takeBack", Delete: "remove", Escape: "leave", e: "everything", c: "isolate",
    h: "hide", 0: "fit", "+": "zoomIn", "=": "zoomIn", "-": "zoomOut", "?": "help", t: "track",
  };
  const frames = {
    ArrowLeft: -1, ArrowRight: 1, ",": -1, ".": 1, "<": -10, ">": 10, Home: -Infinity, End: Infinity,
  };

  // The ring around the picture is for those who use keys.
  addEventListener("keydown", (event) => {
    if (event.key === "Tab" || STEPS[event.key]) document.body.classList.add("uses-keys");
  }, true);
  addEventListener("pointerdown", () => document.body.classList.remove("uses-keys"), true);

  const isTyping = (target) => target.closest("input:not([type=range]), select, textarea, dialog[open]");
  const isSlider = (target) => target.matches("input[type=range]");

  addEventListener("keydown", (event) => {
    if (isTyping(event.target)) return;
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "z") {
      event.preventDefault();
      commands[event.shiftKey ? "redo" : "undo"]();
    } else if (isCommand && event.key.toLowerCase() === "y") {
      event.preventDefault();
      commands.redo();
    }
    if (isCommand || event.altKey) return;
    const isOnButton = event.target.closest("button");
    if (event.key === " " && !isOnButton) {
      event.preventDefault();
      commands.space(true);
      return;
    }
    if (event.key === "Enter" && isOnButton) return;
    // The slider has arrows, Home and End of its own.
    if (isSlider(event.target) && event.key.length > 1) return;
    if (frames[event.key] && commands.isClip()) {
      event.preventDefault();
      commands.step(frames[event.key] * (event.shiftKey && event.key.startsWith("Arrow") ? 10 : 1));
      return;
    }
    if (/^[1-3]$/.test(event.key)) return commands.choose(Number(event.key) - 1);
    const name = plain[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!name) return;
    event.preventDefault();
    commands[name]();
  });
  addEventListener("keyup", (event) => {
    if (event.key === " " && !isTyping(event.target) && !event.target.closest("button")) commands.space(false);
  });
}
