// Objects of a clip: their marks on each frame, and the masks that are known.

import { Objects } from "./state.js";

const NOTHING = { points: [], box: null };

const keyOf = (frame, id) => `${frame} ${id}`;
const partsOf = (key) => key.split(" ").map(Number);

export class ClipStore extends Objects {
  /** What is said of an object without a mask. */
  absence = "not on this frame";
  /** Frame that is shown. */
  frame = 0;
  /** Masks by frame, then by object. @type {Map<number, Map<number, object>>} */
  #masks = new Map();

  blank() {
    return { ...super.blank(), marks: new Map() };
  }

  clear() {
    this.#masks.clear();
    this.frame = 0;
    super.clear();
  }

  /** Points and box of an object on the frame that is shown. */
  marks(object) {
    return this.state.marks.get(keyOf(this.frame, object.id)) ?? NOTHING;
  }

  /** All marks: frame, object, points, box. */
  allMarks(state = this.state) {
    return [...state.marks].map(([key, marks]) => {
      const [frame, object] = partsOf(key);
      return { frame, object, ...marks };
    });
  }

  /** Changes the marks of the active object on this frame, or of a new one. */
  #prompt(change) {
    const active = this.active ?? this.fresh();
    const marks = new Map(this.state.marks);
    marks.set(keyOf(this.frame, active.id), change(this.marks(active)));
    const objects = this.active ? this.state.objects : [...this.state.objects, active];
    this.commit({ objects, marks, active: active.id });
  }

  addPoint(x, y, label) {
    this.#prompt((marks) => ({ ...marks, points: [...marks.points, [x, y, label]] }));
  }

  setBox(box) {
    this.#prompt(() => ({ points: [], box }));
  }

  /** Takes back the last point on this frame, or the box; an object without any mark is removed. */
  takeBack() {
    const { active } = this;
    if (!active) return;
    const key = keyOf(this.frame, active.id);
    const here = this.state.marks.get(key);
    if (!here) return;
    const points = here.points.slice(0, -1);
    const box = here.points.length > 0 ? here.box : null;
    const marks = new Map(this.state.marks);
    if (points.length === 0 && !box) marks.delete(key);
    else marks.set(key, { points, box });
    const isMarked = [...marks.keys()].some((other) => partsOf(other)[1] === active.id);
    if (!isMarked) return this.remove(active.id);
    this.commit({ ...this.state, marks });
  }

  remove(id) {
    const marks = new Map([...this.state.marks].filter(([key]) => partsOf(key)[1] !== id));
    const objects = this.state.objects.filter((object) => object.id !== id);
    this.commit({ objects, marks, active: this.state.active === id ? null : this.state.active });
  }

  /** Adds objects that the server found, without a step of history. */
  addFound(id, name) {
    if (this.state.objects.some((object) => object.id === id)) return;
    this.state = { ...this.state, objects: [...this.state.objects, this.fresh({ id, name: `${name} ${id}` })] };
  }

  answer() {
    return null;
  }

  choice() {
    return 0;
  }

  /** The mask of an object on the frame that is shown; null for none and for an empty one. */
  mask(object) {
    const mask = this.maskOn(this.frame, object.id);
    return mask && mask.area > 0 ? mask : null;
  }

  maskOn(frame, id) {
    return this.#masks.get(frame)?.get(id) ?? null;
  }

  setMasks(frame, masks) {
    if (!this.#masks.has(frame)) this.#masks.set(frame, new Map());
    for (const mask of masks) this.#masks.get(frame).set(mask.object, mask);
    this.changed();
  }

  /** Forgets the mask of an object on a frame, or on all. */
  forgetMasks(id, frame = null) {
    for (const [number, masks] of this.#masks) {
      if (frame === null || number === frame) masks.delete(id);
      if (masks.size === 0) this.#masks.delete(number);
    }
  }

  forgetAllMasks() {
    this.#masks.clear();
  }

  get maskedFrames() {
    return this.#masks.size;
  }

  show(frame) {
    this.frame = frame;
    this.changed();
  }
}

/** What must be told to the server when one state follows another: marks to set, marks to take back, objects to remove. */
export function differences(before, after) {
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const isKnown = (id) => after.objects.some((object) => object.id === id);
  const gone = before.objects.map(({ id }) => id).filter((id) => !isKnown(id));
  const taken = [...before.marks.keys()].filter((key) => !after.marks.has(key)).map(partsOf)
    .filter(([, id]) => isKnown(id));
  const set = [...after.marks].filter(([key, marks]) => !same(marks, before.marks.get(key)))
    .map(([key, marks]) => ({ key: partsOf(key), marks, before: before.marks.get(key) ?? NOTHING }));
  return { gone, taken, set };
}

/** Whether marks only grew, so that a mask is refined and not computed anew. */
export function isMore(before, after) {
  const starts = before.points.every((point, index) => String(point) === String(after.points[index]));
  return starts && after.points.length >= before.points.length && String(before.box) === String(after.box);
}
