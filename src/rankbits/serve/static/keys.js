// Arrow keys between tiles: one tile is in the tab order, and the arrows reach the others.

const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

const listTiles = (box) => [...box.querySelectorAll("a.tile, a.more")];

export function resetTabOrder(box) {
  const tiles = listTiles(box);
  tiles.forEach((tile, i) => tile.setAttribute("tabindex", i ? "-1" : "0"));
}

function moveTabOrder(box, tile) {
  for (const other of listTiles(box)) other.setAttribute("tabindex", other === tile ? "0" : "-1");
}

// The nearest tile of the next row up or down, by its place on the screen.
function findAcross(tiles, from, down) {
  const here = from.getBoundingClientRect();
  const middle = (r) => (r.left + r.right) / 2;
  const rows = tiles
    .map((tile) => ({ tile, r: tile.getBoundingClientRect() }))
    .filter(({ r }) => (down ? r.top >= here.bottom - 4 : r.bottom <= here.top + 4));
  const edge = down
    ? Math.min(...rows.map(({ r }) => r.top))
    : Math.max(...rows.map(({ r }) => r.top));
  const row = rows.filter(({ r }) => Math.abs(r.top - edge) < 8);
  row.sort((a, b) => Math.abs(middle(a.r) - middle(here)) - Math.abs(middle(b.r) - middle(here)));
  return row[0]?.tile ?? null;
}

export function moveByArrows(box) {
  box.addEventListener("focusin", (event) => {
    const tile = event.target.closest("a.tile, a.more");
    if (tile) moveTabOrder(box, tile);
  });
  box.addEventListener("keydown", (event) => {
    const tile = event.target.closest("a.tile, a.more");
    if (!tile || !MOVES.includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    const tiles = listTiles(box);
    const at = tiles.indexOf(tile);
    const next = {
      ArrowLeft: () => tiles[at - 1],
      ArrowRight: () => tiles[at + 1],
      Home: () => tiles[0],
      End: () => tiles[tiles.length - 1],
      ArrowUp: () => findAcross(tiles, tile, false),
      ArrowDown: () => findAcross(tiles, tile, true),
    }[event.key]();
    event.preventDefault();
    if (next) next.focus();
  });
}
