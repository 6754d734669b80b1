// The page's only way to make elements. What a person or a model wrote only ever becomes the data of text nodes, never HTML.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Appends where the text only grew, so that a long answer is not laid out anew with each delta and a selection survives.
export function setText(node, text) {
  const known = node.firstChild;
  if (!known) {
    if (text) node.append(document.createTextNode(text));
  } else if (known.data !== text) {
    if (text.startsWith(known.data)) known.appendData(text.slice(known.data.length));
    else known.data = text;
  }
}
