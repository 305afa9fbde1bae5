// The list of objects, the candidates, and the buttons that depend on them.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  shown: "M2 10s3-5.5 8-5.5S18 10 18 10s-3 5.5-8 5.5S2 10 2 10zM10 7.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
  hidden: "M2 10s3-5.5 8-5.5S18 10 18 10s-3 5.5-8 5.5S2 10 2 10zM4 16 16 4",
  remove: "M5 5l10 10M15 5 5 15",
};

function svg(viewBox, d, attributes) {
  const element = document.createElementNS(SVG, "svg");
  element.setAttribute("viewBox", viewBox);
  element.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  for (const [name, value] of Object.entries(attributes)) path.setAttribute(name, value);
  element.append(path);
  return element;
}

/** The shape of a mask in a small square. */
function silhouette(mask, colour) {
  const [x, y, width, height] = mask.bbox;
  const margin = Math.max(width, height, 1) * 0.06;
  const box = [x - margin, y - margin, width + 2 * margin, height + 2 * margin].join(" ");
  return svg(box, mask.path, { fill: colour, "fill-rule": "evenodd" });
}

export const percent = (mask, size) => {
  const share = (100 * mask.area) / (size.width * size.height);
  return share < 1 ? "<1 %" : `${Math.round(share)} %`;
};

function smallButton(label, icon, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  button.setAttribute("aria-label", label);
  button.title = label;
  button.append(svg("0 0 20 20", ICONS[icon], {}));
  button.addEventListener("click", act);
  return button;
}

/**
 * @param {import("./state.js").Store} store
 * @param {import("./view.js").View} view
 */
export function follow(store, view) {
  const list = document.getElementById("objects");
  const rows = new Map();

  const makeRow = (id) => {
    const row = document.createElement("li");
    const swatch = document.createElement("button");
    swatch.type = "button";
    swatch.className = "swatch";
    swatch.addEventListener("click", () => store.select(id));
    const name = document.createElement("input");
    name.setAttribute("aria-label", "Name");
    name.maxLength = 100;
    name.addEventListener("change", () => store.change(id, { name: name.value }));
    name.addEventListener("keydown", (event) => event.key === "Enter" && name.blur());
    const facts = document.createElement("span");
    facts.className = "facts";
    row.append(swatch, name, facts);
    return { row, swatch, name, facts, buttons: [] };
  };

  const fill = (entry, object) => {
    const { row, swatch, name, facts } = entry;
    const mask = store.mask(object);
    row.className = `object${object.id === store.state.active ? " is-active" : ""}${object.hidden ? " is-hidden" : ""}`;
    swatch.setAttribute("aria-label", `Select ${object.name}`);
    swatch.replaceChildren(...(mask ? [silhouette(mask, object.colour)] : []));
    if (document.activeElement !== name) name.value = object.name;
    facts.textContent = mask ? `${percent(mask, view.picture)} · score ${mask.score.toFixed(2)}` : store.absence ?? "…";
    const toggle = smallButton(object.hidden ? `Show ${object.name}` : `Hide ${object.name}`,
      object.hidden ? "hidden" : "shown", () => store.change(object.id, { hidden: !object.hidden }));
    const remove = smallButton(`Remove ${object.name}`, "remove", () => store.remove(object.id));
    const focused = entry.buttons.indexOf(document.activeElement);
    entry.buttons.forEach((button) => button.remove());
    entry.buttons = [toggle, remove];
    row.append(toggle, remove);
    if (focused >= 0) entry.buttons[focused].focus();
  };

  const showObjects = () => {
    const known = new Set(store.state.objects.map((object) => object.id));
    for (const [id, { row }] of rows) {
      if (known.has(id)) continue;
      row.remove();
      rows.delete(id);
    }
    store.state.objects.forEach((object, index) => {
      if (!rows.has(object.id)) rows.set(object.id, makeRow(object.id));
      const entry = rows.get(object.id);
      if (list.children[index] !== entry.row) list.insertBefore(entry.row, list.children[index] ?? null);
      fill(entry, object);
    });
  };

  const showCandidates = () => {
    const box = document.getElementById("candidates");
    const active = store.active;
    const masks = (active && store.answer(active)?.masks) ?? [];
    box.hidden = masks.length < 2;
    const focused = [...box.children].indexOf(document.activeElement);
    box.replaceChildren(...(box.hidden ? [] : masks.map((mask, index) => {
      const button = document.createElement("button");
      const score = document.createElement("small");
      score.textContent = `${index + 1} · ${mask.score.toFixed(2)}`;
      button.type = "button";
      button.setAttribute("aria-label", `${score.textContent}, candidate, ${percent(mask, view.picture)}`);
      button.setAttribute("aria-pressed", String(index === store.choice(active)));
      button.append(silhouette(mask, active.colour), score);
      button.addEventListener("click", () => store.change(active.id, { choice: index }));
      return button;
    })));
    if (focused >= 0) box.children[focused]?.focus();
  };

  const show = () => {
    if (!view.picture || view.store !== store) return;
    const count = store.state.objects.length;
    document.getElementById("empty").hidden = count > 0;
    const isClip = store.maskedFrames !== undefined;
    document.getElementById("downloads").hidden = isClip || store.visible().length === 0;
    document.getElementById("clip-downloads").hidden = !isClip || store.maskedFrames === 0;
    document.getElementById("undo").disabled = !store.canUndo;
    document.getElementById("redo").disabled = !store.canRedo;
    document.getElementById("new-object").disabled = !store.active;
    document.getElementById("isolate").disabled = count === 0;
    showObjects();
    showCandidates();
  };
  store.addEventListener("change", show);
  show();
}
