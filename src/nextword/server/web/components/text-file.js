/* <nw-text-file>: a button that opens a text file; files can also be dropped on a field. Dispatches "text" with the text
   in `detail`. A file that is too long, or not UTF-8, is refused with the reason. */

import { h, newId, put } from "../core/dom.js";
import { addStrings, t } from "../core/i18n.js";
import { count } from "../core/numbers.js";
import strings from "../strings/heat.js";

addStrings("heat", strings);

class TextFile extends HTMLElement {
  /** field: the element on which files can be dropped; most: characters. */
  show({ field, most }) {
    const id = newId("file");
    const problem = h("span", { class: "failed", role: "alert" });
    const open = async (file) => {
      put(problem);
      try {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()).replaceAll("\r\n", "\n");
        if (text.includes("\0")) throw new TypeError();
        if (text.length > most) put(problem, t("heat.too-long", { name: file.name, characters: count(text.length), most: count(most) }));
        else this.dispatchEvent(new CustomEvent("text", { detail: text, bubbles: true }));
      } catch {
        put(problem, t("heat.not-text", { name: file.name }));
      }
    };
    const input = h("input", { type: "file", id, class: "sr", accept: ".txt,.md,text/plain", onchange: () => input.files[0] && open(input.files[0]).then(() => (input.value = "")) });
    const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    field.addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
    field.addEventListener("drop", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      open(event.dataTransfer.files[0]);
    });
    put(this, input, h("label", { for: id, class: "as-button" }, t("heat.open")), h("span", {}, ` ${t("heat.drop")} `), problem);
  }
}

customElements.define("nw-text-file", TextFile);
