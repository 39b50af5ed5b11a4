/* Texts that show something in each view, for models that know the World English Bible. */

const LIGHT = "And God said, Let there be light: and there was light. And God saw the light, that it was good: and God divided the light from the";
const COVENANT = "And God said to Noah, This is the token of the covenant which I have established between me and all flesh that is on the";
const LAND = "The sons of Israel went out of the land of";
const SERVANTS = "The king said to his servants, Go to the city, and bring me the";
const LIFE = "Jesus said to his disciples, Whoever believes in me shall have eternal";
const LONG = "Now it happened in the days of the king of Judah, that the captain of the host, and all the men of war who were with him, came to the gates of the city by night, and the people who were in the city saw them from the wall, and told it to the";

const SHORT = ["In the beginning God created the", "And God said"]; // for models that read little at once
const SHOWN = 3;

const CAUSAL = { attention: [LIGHT, SERVANTS], layers: [COVENANT, LIGHT], gates: [LIGHT, SERVANTS], gradient: [LONG, COVENANT, LIGHT] };
const BLANKS = ["The king said to his servants, Go to the ___, and bring me the son of the king.", "And God said, Let there be ___: and there was light."];
const FULL = ["And God said, Let there be light: and there was light.", "The king said to his servants, Go to the city, and bring me the king."];
const PAIRS = [
  { source: "And God said, Let there be light: and there was light.", text: "God said, “Let there be light,” and there was light." },
  { source: "In the beginning God created the heaven and the earth.", text: "" },
  { source: "Jesus wept.", text: "" },
];
const SPANS = [{ source: "And God said, Let there be ___: and there was light.", text: "light" }];

/** [{text, source?}]: examples for a view and a model, the most telling one first. */
export function examplesOf(view, model) {
  if (model.isSeq2seq) return model.infills ? SPANS : PAIRS;
  const fits = (text) => !model.window || model.family === "window" || text.length <= 1.5 * model.window; // about: a token has a few characters
  const choose = (texts) => {
    const fitting = texts.filter(fits);
    const shown = fitting.length ? fitting : SHORT.filter(fits);
    return (shown.length ? shown : SHORT.slice(-1)).slice(0, SHOWN).map((text) => ({ text }));
  };
  if (model.isMasked) return choose(view === "saliency" ? BLANKS : FULL);
  if (view === "saliency") return choose(model.family === "recurrent" ? [LAND, LIFE, SERVANTS] : [SERVANTS, LIFE, LAND]);
  return choose(CAUSAL[view] ?? CAUSAL.attention);
}
