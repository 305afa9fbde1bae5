// Objects and their history. A state holds prompts only; the masks of prompts are kept beside it, so that undo and
// redo of a picture need no request.

const COLOURS = ["#ff5a36", "#12a594", "#f5a400", "#7c5cff", "#2f80ed", "#e6439b", "#6aa80f", "#0aa5c9"];

/**
 * @typedef {object} MaskObject
 * @property {number} id
 * @property {string} name
 * @property {string} colour
 * @property {boolean} hidden
 */

/** A list of objects, one of them active, with undo and redo. */
export class Objects extends EventTarget {
  #past = [];
  #future = [];
  #count = 0;
  /** @type {{objects: MaskObject[], active: number | null}} */
  state = this.blank();

  /** A state without objects. */
  blank() {
    return { objects: [], active: null };
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** Forgets everything. */
  clear() {
    this.#past = [];
    this.#future = [];
    this.#count = 0;
    this.state = this.blank();
    this.changed();
  }

  commit(state) {
    this.#past.push(this.state);
    if (this.#past.length > 200) this.#past.shift();
    this.#future = [];
    this.state = state;
    this.changed();
  }

  undo() {
    if (!this.canUndo) return;
    this.#future.push(this.state);
    this.state = this.#past.pop();
    this.changed();
  }

  redo() {
    if (!this.canRedo) return;
    this.#past.push(this.state);
    this.state = this.#future.pop();
    this.changed();
  }

  get canUndo() { return this.#past.length > 0; }
  get canRedo() { return this.#future.length > 0; }
  get active() { return this.state.objects.find((object) => object.id === this.state.active) ?? null; }

  /** The number of the next new object. */
  get next() { return this.#count + 1; }

  /** A new object with a name and colour of its own. */
  fresh(more) {
    this.#count = Math.max(this.next, more?.id ?? 0);
    const number = this.#count;
    return {
      id: number, name: `Object ${number}`, colour: COLOURS[(number - 1) % COLOURS.length], hidden: false, ...more,
    };
  }

  change(id, more) {
    const objects = this.state.objects.map((object) => (object.id === id ? { ...object, ...more } : object));
    this.commit({ ...this.state, objects });
  }

  remove(id) {
    const objects = this.state.objects.filter((object) => object.id !== id);
    this.commit({ ...this.state, objects, active: this.state.active === id ? null : this.state.active });
  }

  select(id) {
    if (this.state.active !== id) {
      this.state = { ...this.state, active: id };
      this.changed();
    }
  }

  /** The visible objects with masks. */
  visible() {
    return this.state.objects.filter((object) => !object.hidden && this.mask(object));
  }
}

/**
 * Objects of a picture. Besides the fields of all objects they have
 * points (x, y, label), box or null, from (the mask that is refined), choice (the candidate that was chosen) and fixed (a mask
 * that needs no prompt).
 */
export class Store extends Objects {
  #answers = new Map();

  clear() {
    this.#answers.clear();
    super.clear();
  }

  fresh(more) {
    return super.fresh({ points: [], box: null, from: null, choice: null, fixed: null, ...more });
  }

  /** Changes the active object, or makes one. */
  #prompt(change) {
    const active = this.active;
    const from = active ? this.mask(active)?.mask_id ?? null : null;
    const next = { ...(active ?? this.fresh()), from, choice: null };
    const changed = { ...next, ...change(next) };
    const objects = active
      ? this.state.objects.map((object) => (object.id === active.id ? changed : object))
      : [...this.state.objects, changed];
    this.commit({ objects, active: changed.id });
    return changed;
  }

  addPoint(x, y, label) {
    return this.#prompt((object) => ({ points: [...object.points, [x, y, label]] }));
  }

  setBox(box) {
    return this.#prompt(() => ({ box, points: [], from: null, fixed: null }));
  }

  /** Takes back the last point, or the box; an object without prompts is removed. */
  takeBack() {
    const active = this.active;
    if (!active) return;
    const change = active.points.length > 0 ? { points: active.points.slice(0, -1) } : { box: null };
    const next = { ...active, ...change, from: null, choice: null };
    if (!next.box && next.points.length === 0 && !next.fixed) return this.remove(active.id);
    this.change(active.id, next);
  }

  /** Adds objects whose masks are known; returns them. */
  addFixed(masks) {
    const added = masks.map(({ name, mask }) => this.fresh(name ? { name, fixed: mask } : { fixed: mask }));
    this.commit({ objects: [...this.state.objects, ...added], active: null });
    return added;
  }

  static key(object) {
    return JSON.stringify([object.points, object.box, object.from]);
  }

  /** Points and box that are drawn for an object. */
  marks(object) {
    return object;
  }

  answer(object) {
    return this.#answers.get(Store.key(object)) ?? null;
  }

  setAnswer(object, answer) {
    this.#answers.set(Store.key(object), answer);
    this.changed();
  }

  /** Index of the candidate that is shown. */
  choice(object) {
    return object.choice ?? this.answer(object)?.best ?? 0;
  }

  /** The mask that is shown for an object; null while there is none. */
  mask(object) {
    if (object.points.length === 0 && !object.box) return object.fixed;
    return this.answer(object)?.masks[this.choice(object)] ?? null;
  }
}
