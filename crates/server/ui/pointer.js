// Mouse, pen and fingers on the canvas.

/** Farther than this, in pixels of the screen, a press is a drag. */
const DRAG = 5;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./view.js").View} view
 * @param {object} actions click(place, label), box(corners), hover(place or null)
 */
export function listen(canvas, view, actions) {
  const stage = canvas.parentElement;
  const fingers = new Map();
  let press = null;
  let isSpace = false;
  let hasMoved = false;
  let tool = "add";

  const at = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const isFar = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]) > DRAG;
  const pans = (event) => event.button === 1 || isSpace || tool === "pan" || (event.pointerType === "touch" && tool !== "box");

  const corners = (from, to) => {
    const [a, b] = [view.toPicture(from, true), view.toPicture(to, true)];
    return [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[0], b[0]), Math.max(a[1], b[1])];
  };

  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { distance: Math.hypot(a[0] - b[0], a[1] - b[1]), middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (!view.picture) return;
    canvas.setPointerCapture(event.pointerId);
    view.cross = null;
    fingers.set(event.pointerId, at(event));
    if (fingers.size === 2) {
      press = { pinch: spread() };
      view.box = null;
      return;
    }
    press = { start: at(event), last: at(event), isPan: pans(event), isDrag: false, button: event.button };
    actions.hover(null);
  });

  canvas.addEventListener("pointermove", (event) => {
    const place = at(event);
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, place);
    if (!press) {
      if (event.pointerType === "mouse" && !isSpace && tool !== "pan") actions.hover(view.toPicture(place));
      return;
    }
    if (press.pinch) {
      if (fingers.size < 2) return;
      const now = spread();
      view.zoomBy(now.distance / Math.max(1, press.pinch.distance), now.middle);
      view.panBy(now.middle[0] - press.pinch.middle[0], now.middle[1] - press.pinch.middle[1]);
      press.pinch = now;
      return;
    }
    press.isDrag ||= isFar(press.start, place);
    if (!press.isDrag) return;
    if (press.isPan) {
      stage.classList.add("is-moving");
      hasMoved = true;
      view.panBy(place[0] - press.last[0], place[1] - press.last[1]);
    } else if (press.button === 0) {
      view.box = corners(press.start, place);
      view.draw();
    }
    press.last = place;
  });

  const finish = (event) => {
    fingers.delete(event.pointerId);
    stage.classList.remove("is-moving");
    const done = press;
    if (fingers.size === 0) press = null;
    view.box = null;
    view.draw();
    if (!done || done.pinch || event.type === "pointercancel") return;
    if (done.isDrag) {
      const found = corners(done.start, at(event));
      const isBox = !done.isPan && done.button === 0 && found[2] - found[0] > 1 && found[3] - found[1] > 1;
      if (isBox) actions.box(found);
      return;
    }
    const place = view.toPicture(done.start);
    const isPan = done.isPan && (isSpace || tool === "pan" || done.button === 1);
    if (!place || isPan) return;
    const isNot = done.button === 2 || event.shiftKey || tool === "not";
    actions.click(place, isNot ? 0 : 1);
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", finish);
  canvas.addEventListener("pointerleave", () => actions.hover(null));
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const step = event.deltaMode === 1 ? event.deltaY * 20 : event.deltaY;
    view.zoomBy(Math.exp(-Math.max(-120, Math.min(120, step)) / (event.ctrlKey ? 90 : 320)), at(event));
  }, { passive: false });

  const mark = () => stage.classList.toggle("can-move", isSpace || tool === "pan");
  return {
    setTool(name) { tool = name; mark(); },
    /** Whether the picture was moved while Space was down. */
    setSpace(isDown) {
      if (isDown && !isSpace) hasMoved = false;
      isSpace = isDown;
      mark();
      return hasMoved;
    },
  };
}
