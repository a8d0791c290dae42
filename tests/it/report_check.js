// Looks at a report in a real browser and writes what is wrong with it into the page, as JSON.
// tests/it/report.rs puts it into a copy of the page, behind a listener that collects script errors.
addEventListener('load', () => {
  const found = [...window.lightloomErrors];
  // What is folded is checked too.
  document.querySelectorAll('details').forEach((section) => { section.open = true; });
  const name = (node) => {
    const owner = node.closest('[id]');
    const text = node.textContent.trim().replace(/\s+/g, ' ').slice(0, 40);
    return `<${node.tagName.toLowerCase()}> in #${owner ? owner.id : '?'} "${text}"`;
  };
  const isShown = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;
  const ownText = (node) =>
    [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE && child.data.trim() !== '');

  for (const id of window.lightloomRequired) {
    const node = document.getElementById(id);
    if (!node || !isShown(node)) found.push(`missing element: #${id}`);
  }

  // Text that leaves its box, or the screen.
  const screen = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > screen + 1) found.push('text overflow: the page is wider than the screen');
  for (const node of document.querySelectorAll('body *:not(svg, svg *, script, pre)')) {
    const texts = ownText(node);
    if (texts.length === 0 || !isShown(node)) continue;
    let box = node;
    while (getComputedStyle(box).display === 'inline') box = box.parentElement;
    const frame = box.getBoundingClientRect();
    for (const text of texts) {
      const range = document.createRange();
      range.selectNodeContents(text);
      const rect = range.getBoundingClientRect();
      if (rect.left < frame.left - 1.5 || rect.right > frame.right + 1.5) found.push(`text overflow: ${name(node)}`);
      if (!node.closest('.scroll') && rect.right > screen + 1) found.push(`text overflow: ${name(node)} leaves the screen`);
    }
  }

  // Colours: read from the style sheet that is in force.
  const luminance = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = (color) => {
    const ink = luminance(color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  };

  for (const text of document.querySelectorAll('h1, h2, p, td, th, dd, figcaption')) {
    if (ownText(text).length > 0 && contrast(getComputedStyle(text).color) < 2.4) found.push(`no contrast: ${name(text)}`);
  }
  for (const bars of document.querySelectorAll('table.bars')) {
    const longest = Math.max(0, ...[...bars.querySelectorAll('.track i')].map((bar) => bar.getBoundingClientRect().width));
    if (longest < bars.getBoundingClientRect().width / 20) found.push(`empty chart: ${name(bars)}`);
  }
  for (const svg of document.querySelectorAll('svg')) {
    if (!isShown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll(svg.dataset.marks || '*')].map((mark) => mark.getBoundingClientRect());
    const drawn = marks.filter((rect) => rect.width > 0.5 || rect.height > 0.5);
    const width = Math.max(...drawn.map((rect) => rect.right)) - Math.min(...drawn.map((rect) => rect.left));
    if (drawn.length === 0 || width < frame.width / 20) found.push(`empty chart: ${name(svg)}`);
    if (/NaN|inf/.test(svg.innerHTML.replace(/>[^<]*</g, '><'))) found.push(`not a number in ${name(svg)}`);
    const texts = [...svg.querySelectorAll('text')].filter(isShown);
    const rects = texts.map((text) => text.getBoundingClientRect());
    texts.forEach((text, index) => {
      const rect = rects[index];
      const outside = rect.left < frame.left - 2 || rect.right > frame.right + 2
        || rect.top < frame.top - 2 || rect.bottom > frame.bottom + 2;
      if (outside) found.push(`text overflow: ${name(text)} leaves its drawing`);
      if (rect.height < 9) found.push(`text too small: ${name(text)} is ${rect.height.toFixed(1)} px high`);
      if (!text.classList.contains('on-colour') && contrast(getComputedStyle(text).fill) < 2.4) {
        found.push(`no contrast: ${name(text)}`);
      }
      for (let other = 0; other < index; other += 1) {
        const across = Math.min(rect.right, rects[other].right) - Math.max(rect.left, rects[other].left);
        const down = Math.min(rect.bottom, rects[other].bottom) - Math.max(rect.top, rects[other].top);
        if (across > 2 && down > 4) found.push(`text covers text: ${name(text)} and ${name(texts[other])}`);
      }
    });
  }

  const verdict = document.createElement('pre');
  verdict.id = 'lightloom-verdict';
  verdict.textContent = JSON.stringify({
    found,
    frame: Number(window.name),
    width: innerWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches && paper < 0.2,
    opened_ms: performance.now(),
    height: document.documentElement.scrollHeight,
  });
  // The page stands in a frame of the width asked for: windows have a least width.
  parent.document.body.append(verdict);
});
