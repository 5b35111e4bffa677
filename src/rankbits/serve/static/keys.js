// Arrow keys between pictures: one of them is in the tab order, the arrows reach the rest.

const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

const tilesOf = (box) => [...box.querySelectorAll("a.tile, a.more")];

export function roving(box) {
  const tiles = tilesOf(box);
  tiles.forEach((tile, i) => tile.setAttribute("tabindex", i ? "-1" : "0"));
}

function settle(box, tile) {
  for (const other of tilesOf(box)) other.setAttribute("tabindex", other === tile ? "0" : "-1");
}

// The nearest tile of the next row up or down, by where it stands on the screen.
function across(tiles, from, down) {
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

export function arrows(box) {
  box.addEventListener("focusin", (event) => {
    const tile = event.target.closest("a.tile, a.more");
    if (tile) settle(box, tile);
  });
  box.addEventListener("keydown", (event) => {
    const tile = event.target.closest("a.tile, a.more");
    if (!tile || !MOVES.includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    const tiles = tilesOf(box);
    const at = tiles.indexOf(tile);
    const next = {
      ArrowLeft: () => tiles[at - 1],
      ArrowRight: () => tiles[at + 1],
      Home: () => tiles[0],
      End: () => tiles[tiles.length - 1],
      ArrowUp: () => across(tiles, tile, false),
      ArrowDown: () => across(tiles, tile, true),
    }[event.key]();
    event.preventDefault();
    if (next) next.focus();
  });
}
