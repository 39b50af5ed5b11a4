/* Beam search over a table of next-word probabilities, as generation/beam_search.py does it for models. The result has the
   form of POST /api/beam, so that one component draws both. */

export const END = "EOS"; // ends a text

/** A function from the words so far to the next words with their probabilities, which depends on the last word only.
 *  rows: {word: {next word: number}}; "" is the beginning. Rows are divided by their sum; without a row, the text ends. */
export function readTable(rows) {
  return (words) => {
    const row = Object.entries(rows[words.at(-1) ?? ""] ?? {}).filter(([, number]) => number > 0);
    const sum = row.reduce((total, [, number]) => total + number, 0);
    return sum ? row.map(([text, number]) => ({ text, probability: number / sum })) : [{ text: END, probability: 1 }];
  };
}

/** Search with a beam of some width for at most so many steps: {nodes, candidates}.
 *
 *  At each step every open hypothesis is extended by its likeliest words, and the best extensions of all stay: as many as
 *  there are places. A hypothesis that ends keeps its place. A score is Σ log p / lengthᵅ, with α the length penalty. */
export function beamSearch(next, { width, steps, lengthPenalty = 0 }) {
  const nodes = [];
  const candidates = [];
  let places = width;
  let open = [{ node: null, words: [], total: 0 }];
  for (let step = 0; step < steps && open.length; step += 1) {
    const extensions = open.flatMap((hypothesis) => extend(hypothesis, next, places));
    const ranked = [...extensions].sort((one, other) => other.total - one.total); // stable: equals stay in order
    const kept = new Set(ranked.slice(0, places));
    open = [];
    for (const extension of extensions) {
      const { parent, words, text, logProb, total } = extension;
      const isComplete = text === END;
      const state = !kept.has(extension) ? "pruned" : isComplete ? "complete" : "open";
      nodes.push({ parent, step, text, id: text, log_prob: logProb, total, state });
      if (parent !== null) nodes[parent].state = "kept"; // it was extended
      if (state === "pruned") continue;
      if (isComplete) {
        candidates.push(candidate(words, total, lengthPenalty, true));
        places -= 1;
      } else {
        open.push({ node: nodes.length - 1, words, total });
      }
    }
    open.sort((one, other) => other.total - one.total);
  }
  candidates.push(...open.map(({ words, total }) => candidate(words, total, lengthPenalty, false)));
  return { nodes, candidates: candidates.sort((one, other) => other.score - one.score) };
}

/** The likeliest extensions of a hypothesis by one word, best first. */
function extend({ node, words, total }, next, most) {
  const likeliest = [...next(words)].sort((one, other) => other.probability - one.probability).slice(0, most);
  return likeliest.map(({ text, probability }) => {
    const logProb = Math.log(probability);
    return { parent: node, words: [...words, text], text, logProb, total: total + logProb };
  });
}

function candidate(words, total, lengthPenalty, complete) {
  const text = words.filter((word) => word !== END).join(" ");
  return { text, score: total / words.length ** lengthPenalty, log_prob: total, ids: words, complete };
}

/** The nodes of a beam with the path of greedy search: `isGreedy` marks it; where it leaves the beam, nodes are added with
 *  the state "greedy". greedy: the nodes of a search of width 1, which are a chain. */
export function withGreedy(nodes, greedy) {
  const marked = nodes.map((node) => ({ ...node, isGreedy: false }));
  let parent = null;
  for (const own of greedy) {
    let at = marked.findIndex((node) => node.parent === parent && node.id === own.id && node.step === own.step);
    if (at < 0) {
      marked.push({ ...own, parent, state: "greedy" });
      at = marked.length - 1;
    }
    marked[at].isGreedy = true;
    parent = at;
  }
  return marked;
}

/** The nodes as columns, one for each step: numbers of nodes, best first; those that stay come before those that do not. */
export function columnsOf(nodes) {
  const columns = [];
  const order = (number) => ["pruned", "greedy"].indexOf(nodes[number].state); // −1: stays
  nodes.forEach((node, number) => (columns[node.step] ??= []).push(number));
  for (const column of columns) column.sort((a, b) => order(a) - order(b) || nodes[b].total - nodes[a].total);
  return columns;
}

/** The numbers of the nodes from the first step to this one. */
export function pathTo(nodes, number) {
  const path = [];
  for (let at = number; at !== null; at = nodes[at].parent) path.unshift(at);
  return path;
}
