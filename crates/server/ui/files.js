// Files: chosen, dropped, pasted, or the samples; and those that are saved.

import { complain, say } from "./messages.js";

const byId = (id) => document.getElementById(id);

/** Calls `open` with the files that somebody brings. */
export function listen(open) {
  const pick = () => byId("file").click();
  byId("open").addEventListener("click", pick);
  byId("choose").addEventListener("click", pick);
  byId("file").addEventListener("change", ({ target }) => {
    if (target.files[0]) open([...target.files]);
    target.value = "";
  });
  for (const [id, name] of [["sample", "still-life.jpg"], ["sample-clip", "ball.gif"]]) {
    byId(id).addEventListener("click", async () => {
      try {
        await open([await (await fetch(`/app/${name}`)).blob()], name);
      } catch (error) {
        complain(error);
      }
    });
  }
  addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((item) => item.type.startsWith("image/"));
    if (file) open([file]);
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
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) open(files);
  });
}

/** Saves a file under the name of what was opened, with another ending. */
export async function save(make, name, ending) {
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await make());
    link.download = `${name.replace(/\.[^.]*$/, "")}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(`${link.download} saved`);
  } catch (error) {
    complain(error);
  }
}
