// Frames of a clip as pictures: fetched when they are wanted, the last used kept.

/** Bytes of pictures that are kept. */
const BUDGET = 384e6;

export class Frames {
  #load;
  #most;
  #kept = new Map();
  #waiting = new Map();

  /** `load` gives the picture of a frame. */
  constructor(load, { width, height, frames }) {
    this.#load = load;
    this.#most = Math.min(frames, Math.max(16, Math.floor(BUDGET / (4 * width * height))));
    this.count = frames;
  }

  /** The picture of a frame if it is here. */
  peek(index) {
    return this.#kept.get(index) ?? null;
  }

  /** The picture of a frame. */
  async get(index) {
    const kept = this.#kept.get(index);
    if (kept) {
      this.#kept.delete(index);
      this.#kept.set(index, kept);
      return kept;
    }
    if (!this.#waiting.has(index)) {
      const loading = this.#load(index).then((picture) => this.#keep(index, picture));
      this.#waiting.set(index, loading.finally(() => this.#waiting.delete(index)));
    }
    return this.#waiting.get(index);
  }

  #keep(index, picture) {
    this.#kept.set(index, picture);
    if (this.#kept.size > this.#most) this.#kept.delete(this.#kept.keys().next().value);
    return picture;
  }

  /** Fetches the next frames, so that they are here when they are shown. */
  async prepare(from, count = 8) {
    const until = Math.min(this.count, from + count);
    for (let index = from; index < until; index += 1) {
      if (!this.#kept.has(index) && this.#waiting.size < 3) await this.get(index);
    }
  }
}
