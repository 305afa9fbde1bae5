// The timeline of a clip: pictures along it, a lane for each object, and the buttons that play and track.

/** Height of the pictures and of a lane, and half the width of the handle, in pixels of the screen. */
const [PICTURES, LANE, EDGE] = [44, 9, 8];
/** Lanes that are drawn. */
const LANES = 6;

const byId = (id) => document.getElementById(id);

const ICONS = { play: "M6 4.5v11l9-5.5z", pause: "M6.5 5v10M13.5 5v10" };

/**
 * @param {import("./clip.js").Clip} clip
 * @param {import("./clip-state.js").ClipStore} store
 */
export function follow(clip, store) {
  const film = byId("film");
  const context = film.getContext("2d");
  const scrub = byId("scrub");
  const ways = [...document.querySelectorAll("[data-way]")];
  let frame = 0;
  let isLoading = false;

  const placeOf = (index, width) => EDGE + (index / Math.max(1, clip.count - 1)) * (width - 2 * EDGE);

  /** Frames whose pictures lie along the timeline. */
  const shownFrames = (width) => {
    const each = (PICTURES * clip.facts.width) / clip.facts.height;
    const count = Math.max(1, Math.ceil(width / each));
    return Array.from({ length: count }, (_, index) => ({
      x: index * each, width: each, frame: Math.round(((index + 0.5) / count) * (clip.count - 1)),
    }));
  };

  const paintPictures = (width) => {
    context.save();
    context.beginPath();
    context.roundRect(0, 0, width, PICTURES, 8);
    context.clip();
    context.fillStyle = getComputedStyle(film).getPropertyValue("--line");
    context.fillRect(0, 0, width, PICTURES);
    for (const picture of shownFrames(width)) {
      const bitmap = clip.frames.peek(picture.frame);
      if (bitmap) context.drawImage(bitmap, picture.x, 0, picture.width, PICTURES);
    }
    if (clip.progress !== null) {
      context.fillStyle = "#14100a99";
      context.fillRect(0, PICTURES - 7, width, 7);
      context.fillStyle = getComputedStyle(film).getPropertyValue("--accent");
      context.fillRect(0, PICTURES - 7, width * clip.progress, 7);
    }
    context.restore();
  };

  /** A lane: a line where the object is, dots where it is marked. */
  const paintLane = (object, top, width) => {
    const middle = top + LANE / 2;
    const step = (width - 2 * EDGE) / Math.max(1, clip.count - 1);
    const style = getComputedStyle(film);
    context.globalAlpha = object.hidden ? 0.35 : 1;
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(EDGE, middle - 0.5, width - 2 * EDGE, 1);
    for (let index = 0; index < clip.count; index += 1) {
      const mask = store.maskOn(index, object.id);
      if (!mask || mask.area === 0) continue;
      context.fillStyle = object.colour;
      const thick = object.id === store.state.active ? 5 : 3;
      context.fillRect(placeOf(index, width) - step / 2, middle - thick / 2, step + 0.5, thick);
    }
    for (const marks of store.allMarks()) {
      if (marks.object !== object.id) continue;
      context.beginPath();
      context.arc(placeOf(marks.frame, width), middle, 4.2, 0, 7);
      context.fillStyle = style.getPropertyValue("--sheet");
      context.fill();
      context.lineWidth = 2.4;
      context.strokeStyle = object.colour;
      context.stroke();
    }
    context.globalAlpha = 1;
  };

  const paintHandle = (width, height) => {
    const x = placeOf(clip.frame, width);
    const style = getComputedStyle(film);
    context.fillStyle = style.getPropertyValue("--sheet");
    context.fillRect(x - 2.5, 0, 5, height);
    context.fillStyle = style.getPropertyValue("--ink");
    context.fillRect(x - 1.25, 0, 2.5, height);
    context.beginPath();
    context.roundRect(x - 5, 0, 10, 10, 4);
    context.fill();
  };

  const paint = () => {
    frame = 0;
    if (!clip.isOpen) return;
    const ratio = devicePixelRatio || 1;
    const lanes = Math.min(LANES, store.state.objects.length);
    const height = PICTURES + 6 + Math.max(1, lanes) * LANE;
    film.style.height = `${height}px`;
    const width = film.clientWidth;
    film.width = Math.max(1, Math.round(width * ratio));
    film.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paintPictures(width);
    // The active object is always among the lanes.
    const { objects, active } = store.state;
    const position = objects.findIndex(({ id }) => id === active);
    const from = Math.max(0, Math.min(position - LANES + 1, objects.length - LANES));
    objects.slice(from, from + LANES).forEach((object, index) => paintLane(object, PICTURES + 6 + index * LANE, width));
    paintHandle(width, height);
  };
  const draw = () => {
    if (!frame) frame = requestAnimationFrame(paint);
  };

  /** Fetches the pictures along the timeline, one after another. */
  const load = async () => {
    if (isLoading || !clip.isOpen) return;
    isLoading = true;
    const { frames } = clip;
    try {
      for (const picture of shownFrames(film.clientWidth)) {
        if (clip.frames !== frames) break;
        await frames.get(picture.frame);
        draw();
      }
    } catch {
      // A frame that cannot be shown here is reported when it is looked at.
    } finally {
      isLoading = false;
    }
  };

  const show = () => {
    if (!clip.isOpen) return;
    scrub.max = String(clip.count - 1);
    scrub.value = String(clip.frame);
    scrub.setAttribute("aria-valuetext", clip.described(clip.frame));
    byId("clock").textContent = `${clip.frame + 1} / ${clip.count}`;
    const { isPlaying, isTracking } = clip;
    byId("play").setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    byId("play").querySelector("path").setAttribute("d", ICONS[isPlaying ? "pause" : "play"]);
    byId("play").disabled = clip.count < 2;
    const track = byId("track");
    track.textContent = isTracking ? "Cancel" : "Track";
    track.classList.toggle("main", !isTracking);
    track.disabled = !isTracking && store.allMarks().length === 0;
    for (const way of ways) way.disabled = isTracking;
    draw();
  };

  const choose = (way) => {
    for (const other of ways) {
      other.setAttribute("aria-checked", String(other === way));
      other.tabIndex = other === way ? 0 : -1;
    }
  };
  ways.forEach((way, index) => {
    way.addEventListener("click", () => choose(way));
    way.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = ways[(index + step + ways.length) % ways.length];
      choose(next);
      next.focus();
    });
  });
  choose(ways.find((way) => way.dataset.way === "forward"));

  scrub.addEventListener("input", () => {
    // Pausing sets the slider to the frame that is shown.
    const wanted = Number(scrub.value);
    clip.pause();
    clip.leave();
    clip.show(wanted);
  });
  byId("previous-frame").addEventListener("click", () => clip.step(-1));
  byId("next-frame").addEventListener("click", () => clip.step(1));
  byId("play").addEventListener("click", () => (clip.isPlaying ? clip.pause() : clip.play()));
  byId("track").addEventListener("click", () => toggle());

  /** Tracks in the chosen direction, or cancels. */
  function toggle() {
    if (clip.isTracking) return clip.cancel();
    if (store.allMarks().length === 0) return undefined;
    return clip.track(direction());
  }

  /** The chosen direction. */
  function direction() {
    return ways.find((way) => way.getAttribute("aria-checked") === "true").dataset.way;
  }

  new ResizeObserver(() => {
    draw();
    load();
  }).observe(film.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  clip.addEventListener("open", () => {
    show();
    load();
  });
  clip.addEventListener("move", show);
  store.addEventListener("change", show);
  return { toggle, direction };
}
