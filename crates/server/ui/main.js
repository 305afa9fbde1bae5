// The page: opens pictures, asks the server, and wires the parts together.

import { RemotePicture, models, takeToken } from "./api.js";
import { Store } from "./state.js";
import { View } from "./view.js";
import { follow, percent } from "./panel.js";
import * as pointer from "./pointer.js";
import * as keyboard from "./keyboard.js";

const byId = (id) => document.getElementById(id);
const canvas = byId("canvas");
const store = new Store();
const view = new View(canvas, store);

/** The picture on the page: file, name and its copy on the server. */
let current = null;
let isReady = false;
let known = [];

// Messages.

let toastTimer = 0;
function complain(error) {
  if (error.name === "AbortError") return;
  byId("toast").textContent = error.message;
  byId("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { byId("toast").hidden = true; }, 6000);
}

function say(text) {
  byId("live").textContent = text;
}

function status(text, isBusy = false) {
  byId("status").hidden = !text;
  byId("status").textContent = text;
  byId("status").classList.toggle("is-busy", isBusy);
}

// Pictures.

async function open(file, name = file.name || "picture") {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    return complain(new Error(`This browser cannot show ${name}. PNG, JPEG, WebP, GIF and BMP work everywhere.`));
  }
  endEverything();
  store.clear();
  view.show(bitmap);
  byId("welcome").hidden = true;
  byId("panel").hidden = byId("tools").hidden = false;
  canvas.setAttribute("aria-label", `${name}, ${bitmap.width} by ${bitmap.height} pixels`);
  document.title = `${name} · cutout`;
  current = { file, name };
  await connect();
}

/** Sends the picture to the chosen model. */
async function connect() {
  if (!current) return;
  const mine = (current.remote = new RemotePicture(current.file, byId("model").value));
  isReady = false;
  view.hover = null;
  status("Looking at the picture…", true);
  try {
    const answer = await mine.send();
    if (current.remote !== mine) return;
    isReady = true;
    const time = answer.embed_ms >= 1 ? ` in ${(answer.embed_ms / 1000).toFixed(2)} s` : "";
    status("");
    say(`Picture ready${time}. Click an object.`);
    if (answer.warning) complain(new Error(answer.warning));
    canvas.focus({ preventScroll: true });
  } catch (error) {
    if (current.remote !== mine) return;
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
      if (current.remote !== remote) return;
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
store.addEventListener("change", () => {
  const { active } = store;
  if (active && current && (active.points.length > 0 || active.box) && !store.answer(active)) ask(active);
});

const round = (place) => place.map((value) => Math.round(value * 10) / 10);

function click(place, label) {
  if (!isReady) return status("Still looking at the picture…", true);
  view.hover = null;
  if (view.everything) return pickEverything(place);
  store.addPoint(...round(place), label);
}

function box(corners) {
  if (!isReady || view.everything) return;
  view.hover = null;
  store.setBox(round(corners));
}

// The preview under the pointer: one request at a time, the newest position wins.

let wanted = null;
let isPreviewing = false;

async function hover(place) {
  wanted = place;
  if (view.everything) {
    view.everything.over = place && view.pick(view.everything.masks, place);
    return view.draw();
  }
  if (!place || store.active) {
    if (view.hover) {
      view.hover = null;
      view.draw();
    }
    return;
  }
  if (isPreviewing || !isReady) return;
  isPreviewing = true;
  try {
    while (wanted && !store.active && !view.everything) {
      const [x, y] = wanted;
      const { remote } = current;
      const mask = await remote.preview([Math.floor(x) + 0.5, Math.floor(y) + 0.5, 1]);
      if (current.remote !== remote) break;
      view.hover = mask && wanted && !store.active ? mask : null;
      view.draw();
      if (!wanted || (wanted[0] === x && wanted[1] === y)) break;
    }
  } catch (error) {
    complain(error);
  } finally {
    isPreviewing = false;
  }
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
  if (!isReady) return;
  search = new AbortController();
  const own = search;
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
  status(`Looking for ${phrases.join(", ")}…`, true);
  try {
    const answer = await current.remote.find(phrases);
    const found = answer.phrases.flatMap(({ phrase, masks }) => masks.map((mask) => ({ name: phrase, mask })));
    if (found.length) store.addFixed(found);
    status(found.length ? "" : `No ${phrases.join(", ")} in this picture.`);
    say(`${found.length} found`);
  } catch (error) {
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
  space: (isDown) => gestures.setSpace(isDown),
  cross: ([x, y]) => say(`${x}, ${y}`),
};

const gestures = pointer.listen(canvas, view, { click, box, hover });
keyboard.listen(canvas, view, commands);
follow(store, view);

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

// Files: chosen, dropped, pasted, or the sample.

const pick = () => byId("file").click();
byId("open").addEventListener("click", pick);
byId("choose").addEventListener("click", pick);
byId("file").addEventListener("change", ({ target }) => {
  if (target.files[0]) open(target.files[0]);
  target.value = "";
});
byId("sample").addEventListener("click", async () => {
  try {
    const sample = await (await fetch("/app/still-life.jpg")).blob();
    await open(sample, "still-life.jpg");
  } catch (error) {
    complain(error);
  }
});
addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((item) => item.type.startsWith("image/"));
  if (file) open(file);
});
let depth = 0;
const over = (change) => {
  depth = change === 0 ? 0 : Math.max(0, depth + change);
  byId("stage").classList.toggle("is-over", depth > 0);
};
addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
addEventListener("dragleave", () => over(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  over(0);
  const file = event.dataTransfer?.files[0];
  if (file) open(file);
});

// Downloads.

byId("downloads").addEventListener("click", async (event) => {
  const format = event.target.closest("[data-format]")?.dataset.format;
  if (!format) return;
  const objects = store.visible().map((object) => {
    const { rle, score } = store.mask(object);
    return { name: object.name, colour: object.colour, rle, score };
  });
  try {
    const blob = await current.remote.file(format, current.name, objects);
    const extension = { svg: "svg", coco: "json", geojson: "geojson" }[format] ?? "png";
    const stem = current.name.replace(/\.[^.]*$/, "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${stem}.${format}.${extension}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`${link.download} saved`);
  } catch (error) {
    complain(error);
  }
});

// Models.

byId("model").addEventListener("change", () => {
  showModel();
  connect();
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
    for (const { id, title } of known) byId("model").add(new Option(title === id ? id : `${title}`, id));
    showModel();
  } catch (error) {
    complain(error);
  }
}
start();
