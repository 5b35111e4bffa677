"""The page on bits of texts, trained and untrained, from the rows of its benchmark."""

from __future__ import annotations

import statistics
from pathlib import Path

from generated.drawing import Panel, lines
from generated.kept_bytes import mean_and_deviation
from generated.rows import RESULTS, Row, origin, read, table
from generated.trained_texts_prose import CAVEAT, EXAMPLE, OPENING

NAMES = {"scifact": "SciFact", "clinc150": "CLINC150"}
ASKED = {"questions": "float questions", "Hamming": "Hamming", "rescoring": "rescoring"}
UNTRAINED = "untrained floats"
COMMANDS = RESULTS / "quality_train_texts.jsonl"
PEER = "MultipleNegativesRankingLoss"  # of sentence-transformers
COMPARED = ("Projection", "trained", "trained further", "network by batches of 4,096")
DRAWN = {
    UNTRAINED: "floats",
    "trained, float questions": "trained",
    "trained, Hamming": "trained, Hamming",
    "trained further, float questions": "trained further",
    "network by batches of 4,096, float questions": "network",
    "Projection, float questions": "Projection",
    "binary quantisation, rescoring": "binary rescored",
}
Methods = dict[str, dict[int, dict[int, Row]]]  # rows by method, bits and seed
SETTINGS = ("loss", "layer_reach", "reach", "batch", "epochs")  # what validation chooses among


def choose_settings(rows: list[Row], name: str) -> tuple | None:
    """The settings of a frozen network with the best validation: mean nDCG@10 by Hamming distance
    and by float questions."""
    totals: dict[tuple, list[float]] = {}
    for row in rows:
        if row["set"] == name and row["part"] == "validation" and not row["reach"]:
            total = (row["validation"]["Hamming"] + row["validation"]["questions"]) / 2
            totals.setdefault(list_settings(row), []).append(total)
    return max(totals, key=lambda key: statistics.mean(totals[key])) if totals else None


def name_method(row: Row, chosen: tuple | None) -> str:
    """What a row's bits are, as the tables call it; nothing where the page does not show it."""
    if row["part"] == "untrained":
        floats = row["asked"] == "floats"
        return UNTRAINED if floats else f"{row['method']}, {ASKED[row['asked']]}"
    if row["part"] != "trained" or row["asked"] == "floats":
        return ""
    nested = ", nested" if row["prefixes"] else ""
    if row["loss"] == PEER:
        return f"network by {PEER}, {row['method']}, {ASKED[row['asked']]}"
    if row["reach"]:
        return f"network by batches of {row['batch']:,}{nested}, {ASKED[row['asked']]}"
    far = "" if list_settings(row) == chosen else " further"
    return f"trained{far}{nested}, {ASKED[row['asked']]}"


def collect(rows: list[Row], name: str) -> Methods:
    """Rows of the test part by method, bits and seed."""
    chosen = choose_settings(rows, name)
    # of networks with the same batch, only those with the latest settings are shown
    last = {row["batch"]: list_settings(row) for row in rows if is_network(row, name)}
    methods: Methods = {}
    for row in rows:
        if is_network(row, name) and list_settings(row) != last[row["batch"]]:
            continue
        if row["set"] == name and (method := name_method(row, chosen)):
            methods.setdefault(method, {}).setdefault(row["bits"], {})[row["seed"]] = row
    return methods


def list_settings(row: Row) -> tuple:
    return tuple(row[key] for key in SETTINGS)


def is_network(row: Row, name: str) -> bool:
    """Whether a row is of a whole network that was trained on a set by a loss of ours."""
    trained = row["set"] == name and row["part"] == "trained"
    return trained and bool(row["reach"]) and row["loss"] != PEER


def list_sizes(methods: Methods) -> list[int]:
    return sorted({bits for by_bits in methods.values() for bits in by_bits} - {0})


def select(by_bits: dict[int, dict[int, Row]], bits: int, figure: str) -> list[float]:
    """A value for each seed; floats have one value at any number of bits."""
    if 0 in by_bits:
        return [row[figure] for row in by_bits[0].values() if figure in row][:1]
    return [row[figure] for row in by_bits.get(bits, {}).values() if figure in row]


def texts_table(methods: Methods, figure: str) -> str:
    """A line for each method, a column for each number of bits: mean and deviation over seeds."""
    body = []
    for method, by_bits in sorted(methods.items(), key=lambda item: rank_method(item[0])):
        cells = [select(by_bits, bits, figure) for bits in list_sizes(methods)]
        if any(cells):
            body.append([method, *(mean_and_deviation(cell) if cell else "" for cell in cells)])
    return table(["", *(f"{size} bits" for size in list_sizes(methods))], body)


def rank_method(method: str) -> tuple:
    """Floats come first, then what is trained."""
    return method != UNTRAINED, not method.startswith(("trained", "network")), method


def ties_table(methods: Methods) -> str:
    """The least and the most that the order of ties could make of nDCG@10, means over seeds."""
    body = []
    for method, by_bits in sorted(methods.items(), key=lambda item: rank_method(item[0])):
        if method.endswith("Hamming"):
            ends = [
                [select(by_bits, bits, f"NDCG@10 {end}") for end in ("worst", "best")]
                for bits in list_sizes(methods)
            ]
            means = [[statistics.mean(values) for values in pair if values] for pair in ends]
            cells = [" to ".join(f"{mean:.3f}" for mean in pair) for pair in means]
            body.append([method, *cells])
    return table(["", *(f"{size} bits" for size in list_sizes(methods))], body)


def draw(sets: dict[str, Methods]) -> str:
    """nDCG@10 over bits: a panel for each set, and one for SciFact's new claims."""
    panels = []
    for name, methods in sets.items():
        for figure, what in (("NDCG@10", ""), ("NDCG@10 new", ", new claims")):
            curves = {}
            for method, short in DRAWN.items():
                by_bits = methods.get(method, {})
                points = [
                    (float(bits), statistics.mean(values))
                    for bits in list_sizes(methods)
                    if (values := select(by_bits, bits, figure))
                ]
                if points:
                    curves[short] = points
            if curves:
                panels.append(Panel(NAMES[name] + what, lines=curves))
    return lines(panels, "nDCG@10 of texts by bits", "bits", "nDCG@10")


def say_result(methods: Methods, bits: int = 256) -> str:
    """What trained bits and untrained floats reach on all claims and on new ones."""
    text = ""
    for figure, what in (("NDCG@10", "all 300 claims"), ("NDCG@10 new", "the 104 new claims")):
        parts = [
            f"{method.removesuffix(', float questions')} "
            f"{mean_and_deviation(select(methods[method], bits, figure))}"
            for method in (UNTRAINED, *(f"{m}, float questions" for m in COMPARED))
            if select(methods.get(method, {}), bits, figure)
        ]
        text += f"- {bits} bits by float questions, nDCG@10 of {what}: {'; '.join(parts)}.\n"
    return text


def network_section(rows: list[Row], name: str, bits: int = 256) -> str:
    """What the whole network learns in batches of each size, and what that takes."""
    figures = {"NDCG@10": "nDCG@10", "NDCG@10 new": "of new claims"}
    batches: dict[int, dict[str, dict[int, Row]]] = {}
    for row in rows:
        own = is_network(row, name) and not row["prefixes"]
        if own and row["bits"] == row["trained_bits"] == bits:
            by_way = batches.setdefault(row["batch"], {})
            by_way.setdefault(row["asked"], {})[row["seed"]] = row
    if not batches:
        return ""
    body = []
    for batch, by_way in sorted(batches.items()):
        cells = [
            [row[figure] for row in by_way[way].values() if figure in row]
            for figure in figures
            for way in ("questions", "Hamming")
        ]
        spent = list(by_way["questions"].values())
        body.append([
            f"{batch:,}", f"{spent[0]['steps']:,}",
            f"{statistics.median(row['seconds'] for row in spent):,.0f}", str(len(spent)),
            *(mean_and_deviation(cell) if cell else "" for cell in cells),
        ])  # fmt: skip
    ways = ("float questions", "Hamming")
    head = [f"{what}, {way}" for what in figures.values() for way in ways]
    one = next(row for row in reversed(rows) if is_network(row, name))
    return (
        f"\nAll layers trained with the layer of {bits} bits by {one['loss'].split()[0]}, "
        f"{one['epochs']} epochs, in bfloat16 on one {one['gpu'] or 'CPU'}. Batches of thousands "
        "use the two-pass step, with 512 texts in memory at a time:\n\n"
        + table(["texts a batch", "steps", "seconds", "seeds", *head], body)
    )


def validation_table(rows: list[Row], name: str) -> str:
    """A line for each of the settings that were tried."""
    chosen = choose_settings(rows, name)
    body = {}
    for row in rows:
        if row["set"] == name and row["part"] == "validation" and not row["reach"]:
            settings = list_settings(row)
            body[settings] = [
                row["loss"], f"{row['layer_reach']:g}", f"{row['batch']:,}", str(row["epochs"]),
                *(f"{row['validation'][way]:.3f}" for way in ("Hamming", "questions")),
                "chosen" if settings == chosen else "",
            ]  # fmt: skip
    head = ["loss", "reach (rate x steps)", "batch", "epochs", "Hamming", "float questions", ""]
    return table(head, body.values())


def command_table(rows: list[Row]) -> str:
    """What the commands make of each set with their defaults: mean and deviation over seeds."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        sets = {NAMES[row["set"]]: "NDCG@10", f"{NAMES[row['set']]}, new claims": "NDCG@10 new"}
        floats = row["asked"] == "floats"
        maker = "untrained" if floats else f"`rankbits {row['command_run']}`"
        asked = "floats" if floats else ASKED[row["asked"]]
        for column, figure in sets.items():
            # floats are the same whatever bits are made of them
            if figure in row and not (floats and row["command_run"] != "fit"):
                cells.setdefault((maker, asked), {}).setdefault(column, []).append(row[figure])
    columns = list(dict.fromkeys(column for values in cells.values() for column in values))
    body = []
    for names, values in cells.items():
        kept = [values.get(column, []) for column in columns]
        kept = [cell[:1] if names[0] == "untrained" else cell for cell in kept]
        body.append([*names, *(mean_and_deviation(cell) if cell else "" for cell in kept)])
    return table(["", "", *columns], body)


def page(path: Path = RESULTS / "quality_texts.jsonl") -> str:
    """The whole page."""
    # layers trained on a GPU in bfloat16 repeat those of the CPU and are left out
    rows = [row for row in read(path) if not row["gpu"] or row.get("reach")]
    sets = {name: collect(rows, name) for name in NAMES}
    sets = {name: methods for name, methods in sets.items() if methods}
    text = OPENING + draw(sets) + "\n" + CAVEAT + say_result(sets["scifact"]) + EXAMPLE
    commands = read(COMMANDS) if COMMANDS.is_file() else []
    if commands:
        text += "\n## With the commands\n\nnDCG@10 of 256 bits, made by the commands with their "
        text += "defaults from the first 256 tokens of a text (above: 96), mean and deviation over "
        text += "seeds:\n\n"
        text += command_table(commands)
    for name, methods in sets.items():
        text += f"\n## {NAMES[name]}\n\nnDCG@10, mean and deviation over seeds:\n\n"
        text += texts_table(methods, "NDCG@10")
        if any("NDCG@10 new" in row for row in rows if row["set"] == name):
            text += f"\nnDCG@10 of the new claims:\n\n{texts_table(methods, 'NDCG@10 new')}"
        text += network_section(rows, name)
        text += f"\nRecall at 100:\n\n{texts_table(methods, 'recall@100')}"
        text += "\nWhat ties leave open, nDCG@10 in their worst and best order:\n\n"
        text += ties_table(methods)
        if choose_settings(rows, name):
            text += "\nSettings tried on the validation part of the training texts, nDCG@10 of 256 "
            text += f"bits:\n\n{validation_table(rows, name)}"
    origins = dict.fromkeys(origin(row) for row in [*rows, *commands])
    return text + "\n## Where the rows come from\n\n" + "\n".join(f"- {line}" for line in origins)
