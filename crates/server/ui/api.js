// Requests to the server.

/** An answer that is not a success. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const TOKEN = "cutout-token";

/** Takes the token out of the address, so that it is neither shown nor kept in the history of the browser. */
export function takeToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(match[1]));
  history.replaceState(null, "", location.pathname);
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers };
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const { code = "unknown", message = response.statusText } = body?.error ?? {};
  throw new ApiError(response.status, code, message);
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Repeats a request that the server was too busy for. */
async function patient(send) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send();
    } catch (error) {
      if (error.code !== "busy" || attempt === 4) throw error;
      await pause(700 * attempt);
    }
  }
}

const post = (path, body, signal) =>
  request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

/** Calls `hear` with the name and data of each event of an answer, as they arrive. */
async function listen(response, hear) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const name = /^event: (.*)$/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (data) hear(name, JSON.parse(data));
    }
  }
}

/** Errors of a preview that need no words: a newer one took its place, too many wait, tracking began, or a click will send the clip again. */
const QUIET = new Set(["stale", "busy", "conflict", "not_found"]);

/** A series of previews, of which the server computes the newest. */
class Previews {
  #client = crypto.randomUUID?.() ?? String(Math.random());
  #sequence = 0;

  /** The answer to a preview; null if there is none. `send` gets what makes a request a preview. */
  async ask(send) {
    this.#sequence += 1;
    const hover = { client: this.#client, sequence: this.#sequence };
    try {
      return await (await send({ hover, outputs: ["path"], simplify: 0.8 })).json();
    } catch (error) {
      if (QUIET.has(error.code)) return null;
      throw error;
    }
  }
}

const FORMS = { outputs: ["path"], simplify: 0.6 };

/** A clip on the server. */
export class RemoteClip {
  #body;
  #model;
  #id = null;
  #previews = new Previews();

  /** One file, or pictures in their order. */
  constructor(files, model) {
    this.#model = model;
    if (files.length === 1) this.#body = files[0];
    else {
      this.#body = new FormData();
      for (const file of files) this.#body.append("frames", file, file.name || "frame");
    }
  }

  /** Sends the clip; the answer has its size, its frames and its rate. */
  async send() {
    const path = `/api/v1/videos?model=${encodeURIComponent(this.#model)}`;
    const clip = await (await patient(() => request(path, { method: "POST", body: this.#body }))).json();
    this.#id = clip.video_id;
    return clip;
  }

  #path(what) {
    return `/api/v1/videos/${this.#id}${what}`;
  }

  async frame(index) {
    return createImageBitmap(await (await request(this.#path(`/frames/${index}`))).blob());
  }

  /** The mask of an object on a frame. */
  async prompt(frame, object, { points, box }, anew) {
    const body = { frame, object, points, anew, ...FORMS };
    if (box) body.box = box;
    return (await (await patient(() => post(this.#path("/prompt"), body))).json()).mask;
  }

  /** The mask that a click on a frame would have as a new object; null if there is none now. */
  async preview(frame, object, point, signal) {
    const send = (more) => post(this.#path("/prompt"), { frame, object, points: [point], ...more }, signal);
    return (await this.#previews.ask(send))?.mask ?? null;
  }

  takeBack(frame, object) {
    return request(this.#path(`/objects/${object}/frames/${frame}`), { method: "DELETE" });
  }

  removeObject(object) {
    return request(this.#path(`/objects/${object}`), { method: "DELETE" });
  }

  /** Tracks; `hear` is called with each event. */
  async track(body, hear, signal) {
    await listen(await patient(() => post(this.#path("/track"), { ...body, ...FORMS }, signal)), hear);
  }

  cancel() {
    return post(this.#path("/cancel"), {});
  }

  /** A file of the masks of all frames. */
  async file(format) {
    return (await post(this.#path("/export"), { format })).blob();
  }

  /** Forgets the clip, also when the page is closed. */
  forget() {
    if (this.#id) request(this.#path(""), { method: "DELETE", keepalive: true }).catch(() => {});
    this.#id = null;
  }
}

/** The limits of the server. */
export async function info() {
  return (await request("/api/v1/info")).json();
}

/** The models of the server. */
export async function models() {
  return (await (await request("/api/v1/models")).json()).models;
}

/** A picture on the server. It is sent again when the server has dropped it. */
export class RemotePicture {
  #file;
  #model;
  #id = null;
  #previews = new Previews();

  constructor(file, model) {
    this.#file = file;
    this.#model = model;
  }

  /** Sends the picture; the answer has its size and the time that its features took. */
  async send() {
    const path = `/api/v1/images?model=${encodeURIComponent(this.#model)}`;
    const answer = await patient(() => request(path, { method: "POST", body: this.#file }));
    const picture = await answer.json();
    this.#id = picture.image_id;
    return picture;
  }

  async #ask(what, body, signal) {
    try {
      return await post(`/api/v1/images/${this.#id}/${what}`, body, signal);
    } catch (error) {
      if (error.code !== "not_found") throw error;
      await this.send();
      return post(`/api/v1/images/${this.#id}/${what}`, body, signal);
    }
  }

  async segment(prompt) {
    const body = { ...prompt, outputs: ["rle", "path"], simplify: 0.6 };
    return (await patient(() => this.#ask("segment", body))).json();
  }

  /** The mask under the pointer; null if there is none now. */
  async preview(point, signal) {
    const answer = await this.#previews.ask((more) => this.#ask("segment", { points: [point], ...more }, signal));
    return answer?.masks[0] ?? null;
  }

  async find(phrases) {
    return (await patient(() => this.#ask("find", { phrases, outputs: ["rle", "path"], simplify: 0.6 }))).json();
  }

  async everything(signal) {
    const body = { points_per_side: 16, outputs: ["rle", "path"], simplify: 0.8, min_mask_region_area: 60 };
    return (await this.#ask("everything", body, signal)).json();
  }

  /** A file of objects. */
  async file(format, fileName, objects) {
    return (await this.#ask("export", { format, file_name: fileName, objects })).blob();
  }
}
