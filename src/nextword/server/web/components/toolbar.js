/* <nw-toolbar>: copy the view as a link, as curl, Python or a command; save it as one HTML file. */

import { ApiError, isSaved } from "../core/api.js";
import { curl } from "../core/commands.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { download, savedPage } from "../core/saving.js";

class Toolbar extends HTMLElement {
  /** page: the page whose view it is; address(most): {fragment, isCut} of its state. */
  show(page, address) {
    if (isSaved) return put(this);
    const said = h("span", { class: "said", role: "status" });
    const say = (text) => put(said, text);
    const copy = async (text, message) => {
      try {
        await navigator.clipboard.writeText(text);
        say(message);
      } catch {
        say(t("copy-failed"));
        window.prompt(t("copy-by-hand"), text);
      }
    };
    const join = (key) => page.requests().map((request) => (key === "curl" ? curl(request, location.origin) : request[key])).filter(Boolean).join("\n");
    const button = (key, run) => h("button", { class: "plain", type: "button", dataset: { copy: key }, onclick: run }, t(`toolbar:${key}`));
    return put(
      this,
      h(
        "div",
        { class: "toolbar" },
        button("link", () => {
          const { fragment, isCut } = address();
          copy(location.origin + location.pathname + fragment, isCut ? t("link-cut") : t("copied"));
        }),
        ["curl", "python", "cli"].map((key) =>
          button(key, () => {
            const text = join(key);
            if (text) copy(text, t("copied"));
            else say(t(`toolbar:no-${key}`));
          }),
        ),
        button("save", async () => {
          try {
            await page.prepareToSave();
            download(`nextword-${page.constructor.id}.html`, await savedPage(page, address(Infinity).fragment));
            say(t("saved"));
          } catch (error) {
            say((error instanceof ApiError && error.message) || t("error:unreachable"));
          }
        }),
        said,
      ),
    );
  }
}

customElements.define("nw-toolbar", Toolbar);
