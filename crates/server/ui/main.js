// The page: opens pictures, asks the server, and wires the parts together.

import { RemotePicture, info, models, takeToken } from "./api.js";
import { Clip } from "./clip.js";
import { ClipStore } from "./clip-state.js";
import { listen, save } from "./files.js";
import { inOrder, isClip } from "./kinds.js";
import { complain, say, status } from "./messages.js";
import * as timeline from "./timeline.js";
import { Store } from "./state.js";
import { View } from "./view.js";
import { follow, percent } from "./panel.js";
import { Preview } from "./preview.js";
import * as pointer from "./pointer.js";
import * as keyboard from "./keyboard.js";

const byId = (id) => document.getElementById(id);
const canvas = byId("canvas");
const pictureStore = new Store();
const clipStore = new ClipStore();
/** The objects of what is on the page. */
let store = pictureStore;
const view = new View(canvas, store);

/** The picture on the page: file, name and its copy on the server. Null while there is a clip. */
let current = null;
let isReady = false;
let known = [];

// Clips and pictures.

const clip = new Clip(clipStore, { complain, say, status });
const film = timeline.follow(clip, clipStore);

/** Exchanges picture and clip. */
function use(other, isForClip) {
  store.clear();
  store = other;
  view.use(other);
  byId("timeline").hidden = !isForClip;
  byId("everything").hidden = isForClip;
  byId("empty").textContent = isForClip
    ? "Click an object on any frame, then track it through the clip."
    : "Move over the picture and click. What belongs together lights up.";
}

/** Shows what was opened. */
function present(bitmap, name) {
  view.show(bitmap);
  byId("welcome").hidden = true;
  byId("panel").hidden = byId("tools").hidden = false;
  canvas.setAttribute("aria-label", `${name}, ${bitmap.width} by ${bitmap.height} pixels`);
  document.title = `${name} · cutout`;
}

/** Opens files: a picture or a clip. */
async function openFiles(files, name = files[0].name || "picture") {
  if (await isClip(files)) return openClip(inOrder(files), name);
  clip.close();
  return open(files[0], name);
}

async function openClip(files, name) {
  const model = known.find(({ id }) => id === byId("model").value);
  const tracking = model?.tracks ? model : known.find(({ tracks }) => tracks);
  if (!tracking) return complain(new Error("No model of this server tracks objects through clips."));
  byId("model").value = tracking.id;
  showModel();
  endEverything();
  current = null;
  isReady = false;
  use(clipStore, true);
  openedClip = { files, name };
  try {
    await clip.open(files, name, tracking.id);
  } catch (error) {
    status("");
    complain(error);
  }
}

/** Files of the clip on the page. */
let openedClip = null;

clip.addEventListener("open", ({ detail: bitmap }) => {
  isReady = true;
  present(bitmap, clip.name);
  clipStore.changed();
  say(`Clip ready, ${clip.count} frames. Click an object.`);
  canvas.focus({ preventScroll: true });
});
clip.addEventListener("move", () => {
  view.isMoving = clip.isPlaying || clip.isTracking;
  preview.clear();
  view.draw();
});
clip.addEventListener("picture", ({ detail: bitmap }) => view.replace(bitmap));
clip.addEventListener("answer", ({ detail: object }) => describe(object));
addEventListener("pagehide", () => clip.remote?.forget());

async function open(file, name = file.name || "picture") {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    return complain(new Error(`This browser cannot show ${name}. PNG, JPEG, WebP, GIF and BMP work everywhere.`));
  }
  endEverything();
  use(pictureStore, false);
  present(bitmap, name);
  pictureStore.changed();
  openedClip = null;
  current = { file, name };
  await connect();
}

/** Sends the picture to the chosen model. */
async function connect() {
  if (!current) return;
  const mine = (current.remote = new RemotePicture(current.file, byId("model").value));
  isReady = false;
  preview.clear();
  status("Looking at the picture…", true);
  try {
    const answer = await mine.send();
    if (current?.remote !== mine) return;
    isReady = true;
    const time = answer.embed_ms >= 1 ? ` in ${(answer.embed_ms / 1000).toFixed(2)} s` : "";
    status("");
    say(`Picture ready${time}. Click an object.`);
    if (answer.warning) complain(new Error(answer.warning));
    canvas.focus({ preventScroll: true });
  } catch (error) {
    if (current?.remote !== mine) return;
    status("");
    complain(error);
  }
}

// Prompts.

let asking = Promise.resolve();

/** Asks for the mask of an object as it is now. */
function ask(object) {
  const { remote } = current;
  if (store.answer(object)) return;
  asking = asking.then(async () => {
    const slow = setTimeout(() => status("Working…", true), 400);
    try {
      const prompt = { points: object.points };
      if (object.box) prompt.box = object.box;
      if (object.from) prompt.mask_id = object.from;
      const answer = await remote.segment(prompt);
      if (current?.remote !== remote) return;
      store.setAnswer(object, answer);
      describe(object);
    } catch (error) {
      complain(error);
      if (store.active && Store.key(store.active) === Store.key(object)) store.undo();
    } finally {
      clearTimeout(slow);
      if (isReady) status("");
    }
  });
}

function describe(object) {
  const mask = store.mask(object);
  if (!mask) return;
  const answer = store.answer(object);
  const which = answer?.masks.length > 1 ? `, candidate ${store.choice(object) + 1} of ${answer.masks.length}` : "";
  say(`${object.name}${which}, ${percent(mask, view.picture)}, score ${mask.score.toFixed(2)}`);
}

// Masks that undo or redo bring back and that are not known are asked for again.
pictureStore.addEventListener("change", () => {
  const { active } = pictureStore;
  if (active && current && (active.points.length > 0 || active.box) && !store.answer(active)) ask(active);
});

const round = (place) => place.map((value) => Math.round(value * 10) / 10);

function click(place, label) {
  if (!isReady) return status("Still looking at the picture…", true);
  if (clip.isTracking) return complain(new Error("Tracking runs. Cancel it to mark objects."));
  clip.pause();
  preview.clear();
  if (view.everything) return pickEverything(place);
  store.addPoint(...round(place), label);
}

function box(corners) {
  if (!isReady || view.everything || clip.isTracking) return;
  clip.pause();
  preview.clear();
  store.setBox(round(corners));
}

// The preview under the pointer.

const preview = new Preview({ source: previews, show: light, complain });

/** Asks about the picture, or about the frame that is shown. */
function previews() {
  if (!isReady || store.active || view.everything) return null;
  if (!current) return clip.previews();
  const { remote } = current;
  return (point, signal) => remote.preview(point, signal);
}

function light(mask) {
  if (view.hover === mask) return;
  view.hover = mask;
  view.draw();
}

function hover(place) {
  if (!view.everything) return preview.move(place);
  view.everything.over = place && view.pick(view.everything.masks, place);
  return view.draw();
}

// Everything.

let search = null;

function endEverything() {
  search?.abort();
  search = null;
  view.everything = null;
  byId("everything").setAttribute("aria-pressed", "false");
  if (isReady) status("");
  view.draw();
}

async function everything() {
  if (search || view.everything) return endEverything();
  if (!isReady || !current) return;
  search = new AbortController();
  const own = search;
  preview.clear();
  byId("everything").setAttribute("aria-pressed", "true");
  status("Searching the whole picture…", true);
  try {
    const { masks } = await current.remote.everything(own.signal);
    if (search !== own) return;
    search = null;
    masks.sort((one, other) => other.area - one.area);
    store.select(null);
    view.everything = { masks, over: null };
    status(masks.length ? `${masks.length} masks. Click one to keep it.` : "Nothing found.");
    say(`${masks.length} masks`);
    view.draw();
  } catch (error) {
    endEverything();
    complain(error);
  }
}

function pickEverything(place) {
  const mask = view.pick(view.everything.masks, place);
  if (!mask) return;
  const [object] = store.addFixed([{ mask }]);
  view.everything.masks = view.everything.masks.filter((other) => other !== mask);
  view.everything.over = null;
  status(`${view.everything.masks.length} masks. Click one to keep it.`);
  describe(object);
}

// Phrases.

byId("phrase-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const phrases = byId("phrase").value.split(",").map((phrase) => phrase.trim()).filter(Boolean);
  if (!isReady || phrases.length === 0) return;
  if (!current) return clip.track(film.direction(), phrases);
  const { remote } = current;
  status(`Looking for ${phrases.join(", ")}…`, true);
  try {
    const answer = await remote.find(phrases);
    if (current?.remote !== remote) return;
    const found = answer.phrases.flatMap(({ phrase, masks }) => masks.map((mask) => ({ name: phrase, mask })));
    if (found.length) store.addFixed(found);
    status(found.length ? "" : `No ${phrases.join(" or ")} in this picture.`);
    say(`${found.length} found`);
  } catch (error) {
    if (current?.remote !== remote) return;
    status("");
    complain(error);
  }
});

// Commands of buttons and keys.

const press = (id, isOn) => byId(id).setAttribute("aria-pressed", String(isOn));

const commands = {
  click,
  undo: () => store.undo(),
  redo: () => store.redo(),
  next() {
    if (store.active) say(`${store.active.name} kept`);
    store.select(null);
  },
  takeBack: () => store.takeBack(),
  remove: () => store.active && store.remove(store.active.id),
  leave() {
    if (clip.isTracking) return clip.cancel();
    if (view.cross) {
      view.cross = null;
      return view.draw();
    }
    if (view.everything || search) return endEverything();
    if (view.isIsolated) return commands.isolate();
    commands.next();
  },
  everything,
  isolate() {
    if (!view.isIsolated && store.visible().length === 0) return;
    view.isIsolated = !view.isIsolated;
    press("isolate", view.isIsolated);
    view.draw();
  },
  hide() {
    view.isHidden = !view.isHidden;
    say(view.isHidden ? "Masks hidden" : "Masks shown");
    view.draw();
  },
  choose(index) {
    const { active } = store;
    const masks = (active && store.answer(active)?.masks) ?? [];
    if (!masks[index] || masks.length < 2) return;
    store.change(active.id, { choice: index });
    describe(store.active);
  },
  fit: () => view.fit(),
  zoomIn: () => view.zoomBy(1.3),
  zoomOut: () => view.zoomBy(1 / 1.3),
  help: () => byId("help-dialog").showModal(),
  space(isDown) {
    const hasMoved = gestures.setSpace(isDown);
    if (!isDown && clip.isOpen && !hasMoved) commands.play();
  },
  play: () => (clip.isPlaying ? clip.pause() : clip.play()),
  track: () => clip.isOpen && film.toggle(),
  step: (by) => clip.isOpen && clip.step(by),
  isClip: () => clip.isOpen,
  cross: ([x, y]) => say(`${x}, ${y}`),
};

const gestures = pointer.listen(canvas, view, { click, box, hover });
keyboard.listen(canvas, view, commands);
follow(pictureStore, view);
follow(clipStore, view);

const buttons = {
  undo: "undo", redo: "redo", everything: "everything", isolate: "isolate", fit: "fit", help: "help",
  "zoom-in": "zoomIn", "zoom-out": "zoomOut", "new-object": "next",
};
for (const [id, name] of Object.entries(buttons)) byId(id).addEventListener("click", () => commands[name]());

const tools = [...document.querySelectorAll("[data-tool]")];
function choose(tool) {
  for (const other of tools) {
    other.setAttribute("aria-checked", String(other === tool));
    other.tabIndex = other === tool ? 0 : -1;
  }
  gestures.setTool(tool.dataset.tool);
}
tools.forEach((tool, index) => {
  tool.addEventListener("click", () => choose(tool));
  tool.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tools[(index + step + tools.length) % tools.length];
    choose(next);
    next.focus();
  });
});
choose(tools[0]);

view.addEventListener("zoom", () => { byId("zoom").textContent = `${Math.round(view.zoom * 100)} %`; });

listen(openFiles);

// Downloads.

byId("downloads").addEventListener("click", async (event) => {
  const format = event.target.closest("[data-format]")?.dataset.format;
  if (!format) return;
  const objects = store.visible().map((object) => {
    const { rle, score } = store.mask(object);
    return { name: object.name, colour: object.colour, rle, score };
  });
  const extension = { svg: "svg", coco: "json", geojson: "geojson" }[format] ?? "png";
  await save(() => current.remote.file(format, current.name, objects), current.name, `${format}.${extension}`);
});

byId("clip-downloads").addEventListener("click", async (event) => {
  const format = event.target.closest("[data-clip-format]")?.dataset.clipFormat;
  if (!format) return;
  const ending = { labels: "labels.zip", jsonl: "masks.jsonl", overlay: "overlay.zip" }[format] ?? `overlay.${format}`;
  status("Writing the file…", true);
  await save(() => clip.file(format), clip.name, ending);
  status("");
});

// Models.

byId("model").addEventListener("change", () => {
  showModel();
  if (openedClip) openClip(openedClip.files, openedClip.name);
  else connect();
});

function showModel() {
  const model = known.find(({ id }) => id === byId("model").value);
  byId("phrase-form").hidden = !model?.finds;
}

async function start() {
  takeToken();
  const isLocal = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  byId("where").textContent = isLocal ? "It does not leave this computer." : `It is sent to ${location.host} only.`;
  try {
    known = await models();
    if ((await info()).reads_videos) {
      byId("kinds").textContent = "Clips are videos, GIF, APNG, WebP, or pictures, also in a zip.";
      for (const format of ["mp4", "webm"]) document.querySelector(`[data-clip-format=${format}]`).hidden = false;
    }
    for (const { id, title } of known) byId("model").add(new Option(title === id ? id : `${title}`, id));
    showModel();
  } catch (error) {
    complain(error);
  }
}
start();
