// The canvas: picture, masks, marks, cross-hair; zoom and pan.

const still = matchMedia("(prefers-reduced-motion: reduce)");
const paths = new WeakMap();

/** The path of a mask, made once. */
export function pathOf(mask) {
  if (!paths.has(mask)) paths.set(mask, new Path2D(mask.path));
  return paths.get(mask);
}

const LIMITS = [0.05, 40];

export class View extends EventTarget {
  #canvas;
  #context;
  #store;
  #picture = null;
  #frame = 0;
  #scale = 1;
  #origin = [0, 0];
  #isFitted = true;
  #redraw = () => this.draw();
  /** What lies over the objects; set by others, drawn here. */
  hover = null;
  box = null;
  cross = null;
  everything = null;
  isHidden = false;
  isIsolated = false;
  /** Whether frames follow each other, so that no object stands out. */
  isMoving = false;

  constructor(canvas, store) {
    super();
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.use(store);
    new ResizeObserver(() => this.#resized()).observe(canvas);
  }

  /** Draws the objects of another store from now on. */
  use(store) {
    this.#store?.removeEventListener("change", this.#redraw);
    this.#store = store;
    store.addEventListener("change", this.#redraw);
  }

  get store() { return this.#store; }
  get picture() { return this.#picture; }
  get zoom() { return this.#scale; }

  show(bitmap) {
    this.#picture = bitmap;
    this.hover = this.box = this.cross = this.everything = null;
    this.isIsolated = this.isHidden = false;
    this.fit();
  }

  /** Shows another frame in the place of the picture. */
  replace(bitmap) {
    this.#picture = bitmap;
    this.draw();
  }

  #resized() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.#canvas;
    this.#canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.#canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    if (this.#isFitted) this.fit();
    else this.draw();
  }

  /** Shows the whole picture, with room for the tools. */
  fit() {
    if (!this.#picture) return this.draw();
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const [side, above, below] = [Math.min(28, width / 20), 24, 84];
    const room = [Math.max(40, width - 2 * side), Math.max(40, height - above - below)];
    this.#scale = Math.min(room[0] / this.#picture.width, room[1] / this.#picture.height, 4);
    const left = (width - this.#picture.width * this.#scale) / 2;
    const top = above + (room[1] - this.#picture.height * this.#scale) / 2;
    this.#origin = [left, top];
    this.#isFitted = true;
    this.#moved();
  }

  #moved() {
    this.dispatchEvent(new Event("zoom"));
    this.draw();
  }

  zoomBy(factor, at) {
    const { clientWidth, clientHeight } = this.#canvas;
    const [x, y] = at ?? [clientWidth / 2, clientHeight / 2];
    const scale = Math.min(LIMITS[1], Math.max(LIMITS[0], this.#scale * factor));
    const ratio = scale / this.#scale;
    this.#origin = [x - (x - this.#origin[0]) * ratio, y - (y - this.#origin[1]) * ratio];
    this.#scale = scale;
    this.#isFitted = false;
    this.#moved();
  }

  panBy(x, y) {
    this.#origin = [this.#origin[0] + x, this.#origin[1] + y];
    this.#isFitted = false;
    this.#moved();
  }

  /** Position in the picture of a position on the canvas; null outside. */
  toPicture([x, y], isClamped = false) {
    if (!this.#picture) return null;
    const { width, height } = this.#picture;
    const place = [(x - this.#origin[0]) / this.#scale, (y - this.#origin[1]) / this.#scale];
    if (isClamped) return [Math.min(width, Math.max(0, place[0])), Math.min(height, Math.max(0, place[1]))];
    const isInside = place[0] >= 0 && place[1] >= 0 && place[0] < width && place[1] < height;
    return isInside ? place : null;
  }

  /** The mask of a list at a position: the smallest that covers it. */
  pick(masks, [x, y]) {
    const context = this.#context;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    const found = masks.filter((mask) => context.isPointInPath(pathOf(mask), x, y, "evenodd"));
    context.restore();
    return found.reduce((best, mask) => (!best || mask.area < best.area ? mask : best), null);
  }

  draw() {
    if (!this.#frame) this.#frame = requestAnimationFrame((time) => this.#paint(time));
  }

  #paint(time) {
    this.#frame = 0;
    const context = this.#context;
    const ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    if (!this.#picture) return;
    const scale = this.#scale * ratio;
    context.setTransform(scale, 0, 0, scale, this.#origin[0] * ratio, this.#origin[1] * ratio);
    context.imageSmoothingEnabled = this.#scale < 3;
    const unit = 1 / this.#scale;
    if (this.isIsolated) this.#paintCutOut(unit);
    else this.#paintPicture(unit, time);
    if (this.cross) this.#paintCross(unit);
    if (this.box) this.#paintBox(this.box, unit);
  }

  #paintPicture(unit, time) {
    const context = this.#context;
    const { width, height } = this.#picture;
    context.save();
    context.shadowColor = "#0005";
    context.shadowBlur = 26 * (devicePixelRatio || 1);
    context.drawImage(this.#picture, 0, 0);
    context.restore();
    if (this.isHidden) return;
    if (this.everything) return this.#paintEverything(unit, time);
    const active = this.isMoving ? null : this.#store.active;
    const activeMask = active && !active.hidden ? this.#store.mask(active) : null;
    const light = activeMask ?? this.hover;
    if (light) {
      const dimmed = new Path2D();
      dimmed.rect(0, 0, width, height);
      dimmed.addPath(pathOf(light));
      context.fillStyle = activeMask ? "#14100a8c" : "#14100a5c";
      context.fill(dimmed, "evenodd");
    }
    for (const object of this.#store.visible()) {
      if (object !== active) this.#paintMask(this.#store.mask(object), object.colour, unit);
    }
    if (this.hover && !activeMask) this.#outline(this.hover, "#ffffff", unit, time);
    if (activeMask) {
      context.fillStyle = `${active.colour}2e`;
      context.fill(pathOf(activeMask), "evenodd");
      this.#outline(activeMask, active.colour, unit, time);
    }
    if (active) this.#paintMarks(this.#store.marks(active), unit);
  }

  #paintMask(mask, colour, unit) {
    const context = this.#context;
    context.fillStyle = `${colour}66`;
    context.fill(pathOf(mask), "evenodd");
    context.lineJoin = "round";
    context.lineWidth = 3.4 * unit;
    context.strokeStyle = "#fffd";
    context.stroke(pathOf(mask));
    context.lineWidth = 1.8 * unit;
    context.strokeStyle = colour;
    context.stroke(pathOf(mask));
  }

  /** A line along which one would cut: white, with moving dashes. */
  #outline(mask, colour, unit, time) {
    const context = this.#context;
    context.save();
    context.lineJoin = "round";
    context.lineWidth = 3.2 * unit;
    context.strokeStyle = "#fff";
    context.stroke(pathOf(mask));
    context.lineWidth = 2 * unit;
    context.strokeStyle = colour === "#ffffff" ? "#211d19" : colour;
    context.setLineDash([7 * unit, 6 * unit]);
    if (!still.matches) {
      context.lineDashOffset = -(time / 45) * unit;
      this.draw();
    }
    context.stroke(pathOf(mask));
    context.restore();
  }

  #paintEverything(unit, time) {
    const context = this.#context;
    const { masks, over } = this.everything;
    context.fillStyle = "#14100a66";
    context.fillRect(0, 0, this.#picture.width, this.#picture.height);
    masks.forEach((mask, index) => {
      context.fillStyle = `hsl(${(index * 137.5) % 360} 85% 60% / ${mask === over ? 0.8 : 0.52})`;
      context.fill(pathOf(mask), "evenodd");
      context.lineWidth = 1.4 * unit;
      context.strokeStyle = "#fffc";
      context.stroke(pathOf(mask));
    });
    if (over) this.#outline(over, "#ffffff", unit, time);
  }

  /** The objects alone, on a chequered ground, with a shadow as of paper. */
  #paintCutOut(unit) {
    const context = this.#context;
    const { width, height } = this.#picture;
    const style = getComputedStyle(this.#canvas);
    const size = 14 * unit;
    context.fillStyle = style.getPropertyValue("--check");
    for (let row = 0; row * size < height; row += 1) {
      for (let column = row % 2; column * size < width; column += 2) {
        const [x, y] = [column * size, row * size];
        context.fillRect(x, y, Math.min(size, width - x), Math.min(size, height - y));
      }
    }
    for (const object of this.#store.visible()) {
      const path = pathOf(this.#store.mask(object));
      context.save();
      context.shadowColor = "#000a";
      context.shadowBlur = 18 * (devicePixelRatio || 1);
      context.shadowOffsetY = 7 * (devicePixelRatio || 1);
      context.fillStyle = "#000";
      context.fill(path, "evenodd");
      context.restore();
      context.save();
      context.clip(path, "evenodd");
      context.drawImage(this.#picture, 0, 0);
      context.restore();
    }
  }

  /** Marks differ by shape: a disc with a plus, a diamond with a minus. */
  #paintMarks({ points, box }, unit) {
    const context = this.#context;
    if (box) this.#paintBox(box, unit);
    context.lineCap = "round";
    for (const [x, y, label] of points) {
      const radius = (label ? 8 : 10) * unit;
      context.beginPath();
      if (label) context.arc(x, y, radius, 0, 7);
      else {
        context.moveTo(x, y - radius);
        context.lineTo(x + radius, y);
        context.lineTo(x, y + radius);
        context.lineTo(x - radius, y);
        context.closePath();
      }
      context.fillStyle = label ? "#0d7a4f" : "#b3261e";
      context.fill();
      context.lineWidth = 2.2 * unit;
      context.strokeStyle = "#fff";
      context.stroke();
      context.beginPath();
      const arm = 4 * unit;
      context.moveTo(x - arm, y);
      context.lineTo(x + arm, y);
      if (label) {
        context.moveTo(x, y - arm);
        context.lineTo(x, y + arm);
      }
      context.stroke();
    }
  }

  #paintBox([x0, y0, x1, y1], unit) {
    const context = this.#context;
    context.save();
    context.lineWidth = 3 * unit;
    context.strokeStyle = "#fff";
    context.strokeRect(x0, y0, x1 - x0, y1 - y0);
    context.lineWidth = 1.6 * unit;
    context.strokeStyle = "#211d19";
    context.setLineDash([6 * unit, 5 * unit]);
    context.strokeRect(x0, y0, x1 - x0, y1 - y0);
    context.restore();
  }

  #paintCross(unit) {
    const context = this.#context;
    const [x, y] = this.cross;
    const [inner, outer] = [5 * unit, 22 * unit];
    context.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(x + dx * inner, y + dy * inner);
      context.lineTo(x + dx * outer, y + dy * outer);
    }
    context.lineWidth = 4 * unit;
    context.strokeStyle = "#fff";
    context.stroke();
    context.lineWidth = 2 * unit;
    context.strokeStyle = "#211d19";
    context.stroke();
  }
}
