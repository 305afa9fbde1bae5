// The preview under the pointer: one request at a time, the newest position wins.

export class Preview {
  #source;
  #show;
  #complain;
  #place = null;
  #request = null;

  /**
   * @param {object} parts
   * @param {() => ((point: number[], signal: AbortSignal) => Promise<object | null>) | null} parts.source asks for the mask of a point;
   *   null while there is nothing to ask about
   * @param {(mask: object | null) => void} parts.show
   * @param {(error: Error) => void} parts.complain
   */
  constructor({ source, show, complain }) {
    this.#source = source;
    this.#show = show;
    this.#complain = complain;
  }

  /** The pointer is at a position of the picture; null outside. */
  move(place) {
    this.#place = place;
    if (!place || !this.#source()) this.clear();
    else if (!this.#request) this.#run();
  }

  /** Shows nothing until the pointer moves, and drops the request that is under way. */
  clear() {
    this.#request?.abort();
    this.#request = null;
    this.#show(null);
  }

  async #run() {
    const own = new AbortController();
    this.#request = own;
    try {
      for (;;) {
        const place = this.#place;
        const ask = this.#source();
        if (!place || !ask) return;
        const mask = await ask([Math.floor(place[0]) + 0.5, Math.floor(place[1]) + 0.5, 1], own.signal);
        if (this.#request !== own) return;
        this.#show(mask);
        if (this.#place === place) return;
      }
    } catch (error) {
      if (this.#request === own) this.#complain(error);
    } finally {
      if (this.#request === own) this.#request = null;
    }
  }
}
