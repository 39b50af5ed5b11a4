/* Examples for the form of a model, in the language of its training data: [{label, value: fields}]. */

import { TEMPLATE, formOf } from "./task-forms.js";

const PASSAGE =
  "Now when Jesus was born in Bethlehem of Judea in the days of King Herod, behold, wise men from the east came to Jerusalem, saying, “Where is he who is born King of the Jews? For we saw his star in the east, and have come to worship him.” When King Herod heard it, he was troubled, and all Jerusalem with him.";
const LABELED = ["The people rejoiced with great joy, for God had made them glad.", "There was a great famine, and the children wept for bread.", "The king gathered his army and went out to fight against the city."];
const REVIEWS = ["A warm, funny film with a wonderful cast.", "The plot makes no sense, and the jokes are painfully bad.", "It is not a bad film, but I have seen better."];
const PAIRS = [
  ["Jesus went up to Jerusalem with his disciples.", "The disciples were in Jerusalem."],
  ["Two dogs are running through the snow.", "The dogs are asleep."],
];
const TAGGED = ["Jesus went up to Jerusalem, and his disciples followed him.", "In the days of Herod, wise men from the east came to Jerusalem.", "Paul sailed from Troas to Philippi, a Roman city of Macedonia."];
const QUESTIONS = ["Where was Jesus born?", "Who was troubled?", "What did they see in the east?"];
const CHOICES = [
  { text: "The wind blew hard, and the boat was full of water.", question: "", choices: "The men were afraid and cried out.\nThe sheep ate the grass of the field.\nThe king built a house of cedar." },
  { text: "He was hungry, and there was a fig tree by the road.", question: "", choices: "He looked for fruit on it.\nHe sailed over the sea.\nHe counted the silver." },
];
const ZERO_SHOT = [
  { text: LABELED[2], labels: "war, food, love", template: TEMPLATE },
  { text: LABELED[1], labels: "joy, hunger, death", template: "This is about {label}." },
  { text: "He opened his mouth and taught them.", labels: "saying, running, eating", template: "{text} He was {label}." },
];

export function examplesFor(model) {
  const form = formOf(model);
  const texts = (values) => values.map((text) => ({ label: text, value: { text } }));
  if (form.kind === "tags") return texts(TAGGED);
  if (form.kind === "answers") return QUESTIONS.map((question) => ({ label: question, value: { text: PASSAGE, question } }));
  if (form.kind === "choices") return CHOICES.map((value) => ({ label: value.text, value }));
  if (form.isZeroShot) return ZERO_SHOT.map((value) => ({ label: `${value.labels}: ${value.text}`, value }));
  if (form.isPair) return PAIRS.map(([text, second]) => ({ label: text, value: { text, second } }));
  return texts(/sst|review|imdb|rotten|yelp|amazon|film|movie/i.test(model.data) ? REVIEWS : LABELED);
}
