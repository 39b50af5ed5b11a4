export default {
  en: {
    title: "Type, and see what comes next",
    intro: "Each model guesses the next word of your text, and its bars change with every key. Choose a word, or press Tab to take the first one.",
    label: "Your text",
    help: "Tab takes the likeliest word of the first model. To leave the field, press Escape, then Tab.",
    scale: "The numbers are probabilities. Each card has a scale of its own: its longest bar is the likeliest word of that model.",
    bars: "Next words of {model}",
  },
  zh: {
    title: "边输入，边看下一个词",
    intro: "每个模型都在猜你的下一个词，每按一个键，条形就随之变化。点一个词，或按 Tab 采用第一个。",
    label: "你的文本",
    help: "Tab 采用第一个模型最可能的词。要离开输入框，先按 Escape，再按 Tab。",
    scale: "数字是概率。每张卡片各有比例：最长的条是该模型最可能的词。",
    bars: "{model} 预测的下一个词",
  },
};
