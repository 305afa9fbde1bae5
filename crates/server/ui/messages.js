// What the page says: errors, progress, and words for screen readers.

const byId = (id) => document.getElementById(id);

let toastTimer = 0;
export function complain(error) {
  if (error.name === "AbortError") return;
  byId("toast").textContent = error.message;
  byId("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { byId("toast").hidden = true; }, 6000);
}

export function say(text) {
  byId("live").textContent = text;
}

export function status(text, isBusy = false) {
  byId("status").hidden = !text;
  byId("status").textContent = text;
  byId("status").classList.toggle("is-busy", isBusy);
}
