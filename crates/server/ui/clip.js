// A clip: sends it, keeps the server's prompts the same as the page's, plays, tracks, and makes files.

import { RemoteClip } from "./api.js";
import { differences, isMore } from "./clip-state.js";
import { Frames } from "./frames.js";

/** Frames per second where the clip does not say. */
const USUAL_RATE = 25;
/** Largest number of an object. */
const LARGEST_OBJECT = 255;

export class Clip extends EventTarget {
  #store;
  #tell;
  #told;
  #sending = Promise.resolve();
  #tracking = null;
  #playing = 0;
  /** Frames whose marks changed since they were tracked. */
  #changed = new Set();

  /** `tell` shows messages: complain, say, status. */
  constructor(store, tell) {
    super();
    this.#store = store;
    this.#tell = tell;
    this.#told = store.state;
    store.addEventListener("change", () => this.#synchronise());
  }

  /** Sends files and shows the first frame. */
  async open(files, name, model) {
    this.close();
    this.#store.clear();
    this.#told = this.#store.state;
    this.name = name;
    const remote = new RemoteClip(files, model);
    this.remote = remote;
    this.#tell.status("Reading the clip…", true);
    const facts = await remote.send();
    if (this.remote !== remote) return remote.forget();
    this.facts = { ...facts, rate: facts.frame_rate || USUAL_RATE };
    this.frames = new Frames((index) => remote.frame(index), facts);
    const first = await this.frames.get(0);
    if (this.remote !== remote) return;
    this.#tell.status("");
    this.dispatchEvent(new CustomEvent("open", { detail: first }));
  }

  /** Leaves the clip. */
  close() {
    this.pause();
    this.#tracking?.abort.abort();
    this.#tracking = null;
    this.#changed.clear();
    this.remote?.forget();
    this.remote = this.facts = this.frames = null;
  }

  get isOpen() { return this.facts !== null && this.facts !== undefined; }
  get isTracking() { return this.#tracking !== null; }
  get isPlaying() { return this.#playing !== 0; }
  get frame() { return this.#store.frame; }
  get count() { return this.facts?.frames ?? 0; }

  #moved() {
    this.dispatchEvent(new Event("move"));
  }

  // Frames.

  /** Shows a frame. */
  async show(index) {
    const frame = Math.max(0, Math.min(this.count - 1, Math.round(index)));
    this.#store.show(frame);
    this.#moved();
    const { frames } = this;
    try {
      const picture = await frames.get(frame);
      if (this.frames !== frames || this.frame !== frame) return;
      this.dispatchEvent(new CustomEvent("picture", { detail: picture }));
      frames.prepare(frame + 1).catch(() => {});
    } catch (error) {
      this.#tell.complain(error);
    }
  }

  step(by) {
    this.pause();
    this.#follows = false;
    const frame = Math.max(0, Math.min(this.count - 1, this.frame + by));
    this.#tell.say(this.described(frame));
    return this.show(frame);
  }

  /** A frame in words. */
  described(frame) {
    const time = (frame / this.facts.rate).toFixed(2);
    const objects = this.#store.state.objects.filter(({ id }) => this.#store.maskOn(frame, id)?.area > 0);
    const names = objects.map(({ name }) => name).join(", ");
    return `Frame ${frame + 1} of ${this.count}, ${time} s${names ? `: ${names}` : ""}`;
  }

  play() {
    if (!this.isOpen || this.isPlaying || this.count < 2) return;
    let shown = this.frame === this.count - 1 ? 0 : this.frame;
    let last = performance.now();
    const { frames } = this;
    const tick = (now) => {
      if (this.frames !== frames || !this.#playing) return;
      const due = Math.floor(((now - last) / 1000) * this.facts.rate);
      // A frame that is not here yet is waited for.
      if (due >= 1 && frames.peek(Math.min(this.count - 1, shown + 1))) {
        last += (due * 1000) / this.facts.rate;
        const wanted = Math.min(this.count - 1, shown + due);
        shown = frames.peek(wanted) ? wanted : shown + 1;
        this.show(shown);
      } else if (due >= 1) {
        last = now - 1000 / this.facts.rate;
        frames.prepare(shown + 1).catch(() => {});
      }
      if (shown === this.count - 1) return this.pause();
      this.#playing = requestAnimationFrame(tick);
    };
    this.#playing = requestAnimationFrame(tick);
    this.show(shown);
    this.#moved();
  }

  pause() {
    if (!this.#playing) return;
    cancelAnimationFrame(this.#playing);
    this.#playing = 0;
    this.#moved();
  }

  // Prompts.

  /** Tells the server what changed since it was told last. */
  #synchronise() {
    if (!this.isOpen || this.#told === this.#store.state) return;
    const before = this.#told;
    const after = this.#store.state;
    this.#told = after;
    if (before.marks === after.marks && before.objects.length === after.objects.length) return;
    const { remote } = this;
    this.#sending = this.#sending.then(async () => {
      if (this.remote !== remote) return;
      const slow = setTimeout(() => this.#tell.status("Working…", true), 400);
      try {
        await this.#apply(differences(before, after));
      } catch (error) {
        if (error.code === "not_found") await this.#sendAgain().catch((again) => this.#tell.complain(again));
        else this.#refuse(error, before, after);
      } finally {
        clearTimeout(slow);
        if (!this.isTracking) this.#tell.status("");
      }
    });
  }

  async #apply({ gone, taken, set }) {
    const store = this.#store;
    for (const id of gone) {
      store.forgetMasks(id);
      await this.remote.removeObject(id);
    }
    for (const [frame, id] of taken) {
      store.forgetMasks(id, frame);
      await this.remote.takeBack(frame, id);
    }
    for (const { key: [frame, id], marks, before } of set) {
      const mask = await this.remote.prompt(frame, id, marks, !isMore(before, marks));
      this.#changed.add(frame);
      store.setMasks(frame, [mask]);
      const object = store.state.objects.find((other) => other.id === id);
      if (object) this.dispatchEvent(new CustomEvent("answer", { detail: object }));
    }
    store.changed();
  }

  /** Asks for the mask that a click on the frame that is shown would have; null while frames follow each other. */
  previews() {
    const { remote, frame } = this;
    const { next } = this.#store;
    if (!this.isOpen || this.isPlaying || this.isTracking || next > LARGEST_OBJECT) return null;
    return (point, signal) => remote.preview(frame, next, point, signal);
  }

  /** Takes a step back that the server refused. */
  #refuse(error, before, after) {
    this.#tell.complain(error);
    if (this.#store.state === after) {
      this.#told = before;
      this.#store.undo();
      this.#told = this.#store.state;
    }
  }

  /** Sends the clip and its marks once more, when the server has dropped it. */
  async #sendAgain() {
    await this.remote.send();
    for (const { frame, object, ...marks } of this.#store.allMarks()) {
      this.#store.setMasks(frame, [await this.remote.prompt(frame, object, marks, false)]);
    }
  }

  /** A file of all masks, after the server was told of every mark. */
  async file(format) {
    await this.#sending;
    return this.remote.file(format);
  }

  // Tracking.

  /** Whether the page goes along with the frames that arrive. */
  #follows = true;

  leave() {
    this.#follows = false;
  }

  /** Tracks the marked objects, or those of phrases. */
  async track(direction, phrases = []) {
    if (!this.isOpen || this.isTracking) return;
    this.pause();
    await this.#sending;
    const abort = new AbortController();
    const mine = { abort, done: 0, frames: this.count };
    this.#tracking = mine;
    this.#follows = true;
    this.#moved();
    const body = phrases.length ? { phrases, direction } : { direction, ...this.#start() };
    if (phrases.length) this.#store.forgetAllMasks();
    this.#tell.status("Tracking…", true);
    this.#tell.say("Tracking");
    try {
      await this.remote.track(body, (name, data) => this.#hear(mine, name, data), abort.signal);
    } catch (error) {
      if (error.code === "not_found") this.#sendAgain().catch((again) => this.#tell.complain(again));
      this.#tell.complain(error);
    } finally {
      if (this.#tracking === mine) {
        this.#tracking = null;
        this.#tell.status("");
        this.#moved();
      }
    }
  }

  /** The first frame that changed; the server knows the first with a prompt. */
  #start() {
    const changed = [...this.#changed];
    this.#changed.clear();
    return changed.length && this.#store.maskedFrames > changed.length ? { start: Math.min(...changed) } : {};
  }

  #hear(mine, name, data) {
    if (this.#tracking !== mine) return;
    if (name === "started") mine.frames = data.frames;
    if (name === "error") this.#tell.complain(new Error(data.error.message));
    if (name === "done") this.#tell.say(`Tracked ${data.frames} frames`);
    if (name === "cancelled") this.#tell.say(`Cancelled after ${data.frames} frames`);
    if (name !== "frame") return;
    mine.done = data.done;
    for (const { object, phrase } of data.masks) if (phrase) this.#store.addFound(object, phrase);
    this.#told = this.#store.state;
    this.#store.setMasks(data.frame, data.masks);
    this.#tell.status(`Tracking: ${data.done} of ${mine.frames}`, true);
    if (this.#follows) this.show(data.frame);
    else this.#moved();
  }

  /** Share of the frames that are tracked; null while nothing is. */
  get progress() {
    return this.#tracking && this.#tracking.done / Math.max(1, this.#tracking.frames);
  }

  cancel() {
    if (this.isTracking) this.remote.cancel().catch((error) => this.#tell.complain(error));
  }
}
