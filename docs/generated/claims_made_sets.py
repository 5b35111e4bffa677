"""Claims that the papers show or prove on numbers that anyone can make: no dataset is needed."""

from __future__ import annotations

from generated.claims import NO, NONE, YES, Claim, Finding
from generated.evidence import Evidence, Place, grid, short, signed
from generated.rows import cell, table

SUM, LOSS = "talr/appendix-c/sum", "talr/appendix-c/loss"
MARGIN, POOR = "fastap/fig4c", "h2q/fig5"
FORMS = ("simple", "relaxed", "exact")
NOTHING = 1e-12  # a gradient below this is rounding


def judge_bound(evidence: Evidence) -> Finding:
    """Whether the error of Eq. 27 stays below the bound of Eq. 37; beside it the error of AP."""
    shares: dict[int, dict[int, float]] = {}
    for vary, key in evidence.varied(SUM):
        share = evidence.mean(Place(SUM, None, None, key))
        if share is not None:
            shares.setdefault(vary["options.before"], {})[vary["options.tied"]] = share
    if not shares:
        return Finding(NONE)
    tied = sorted({n for row in shares.values() for n in row})
    lines = [
        [f"{before:,} before", *(short(row[n]) if n in row else "" for n in tied)]
        for before, row in sorted(shares.items())
    ]
    every = [share for row in shares.values() for share in row.values()]
    said = f"The error is {short(min(every))} to {short(max(every))} of the bound in {len(every)} "
    said += f"cases. {tell_errors(evidence)}"
    shown = table(["error / bound", *(f"{n:,} tied" for n in tied)], lines)
    places = [(f"error of AP, {form}", find_form(evidence, form)) for form in FORMS]
    known = [(name, place) for name, place in places if place is not None]
    shown += f"\n{grid(evidence, known, evidence.bits(LOSS), paper=False)}" if known else ""
    return Finding(YES if max(every) <= 1 else NO, said.strip(), shown)


def find_form(evidence: Evidence, form: str) -> Place | None:
    keys = (key for vary, key in evidence.varied(LOSS) if vary.get("options.form") == form)
    return next((Place(LOSS, None, None, key) for key in keys), None)


def tell_errors(evidence: Evidence) -> str:
    """The largest error of each form's AP, over lengths and seeds."""
    told = []
    for form in FORMS:
        place = find_form(evidence, form)
        if place is not None:
            errors = [v for b in evidence.bits(LOSS) for v in evidence.values(place.at(b)).values()]
            told.append(f"{form} {max(errors):.1g}")
    return f"Largest error of AP over 256 codes, by form: {', '.join(told)}." if told else ""


def judge_bins(evidence: Evidence) -> Finding:
    """Whether bins narrower than the margin leave nothing to learn, and wider ones do."""
    lines, held = [], []
    vanished: list[str] = []
    learns: list[str] = []
    for vary, key in evidence.varied(MARGIN):
        (row,) = evidence.at(Place(MARGIN, None, None, key)).values()
        bins, figures = vary["options.bins"], row["figures"]
        gone = figures["gradient"] < NOTHING
        held.append(gone == (figures["FastAP"] > 1 - NOTHING))
        (vanished if gone else learns).append(str(bins))
        gradient = cell(0.0 if gone else figures["gradient"])
        lines.append([str(bins), short(figures["FastAP"]), gradient])
    if not lines:
        return Finding(NONE)
    said = f"With {' and '.join(vanished)} bins FastAP is 1, as AP is, and its gradient 0; with "
    said += f"{', '.join(learns)} bins FastAP is below 1 and its gradient above 0."
    shown = table(["bins", "FastAP", "norm of the gradient"], lines)
    return Finding(YES if all(held) and vanished and learns else NO, said, shown)


def judge_rotations(evidence: Evidence) -> Finding:
    """Whether H2Q lowers the figure of poorly separated classes, and a supervised rotation not."""
    names = {"no rotation": "none", "H2Q": "h2q", "ITQ": "itq", "supervised rotation": "supervised"}
    places = {said: Place(POOR, name, 2) for said, name in names.items()}
    h2q, supervised = (
        evidence.gap(places[name], places["no rotation"]) for name in ("H2Q", "supervised rotation")
    )
    if h2q is None or supervised is None:
        return Finding(NONE)
    said = f"mAP minus that of no rotation: H2Q {signed(h2q.mean)}, supervised rotation "
    said += f"{signed(supervised.mean)}; {h2q.seeds} seeds."
    itq = evidence.mean(places["ITQ"])
    if itq is not None:
        said += f" ITQ ({short(itq)}) climbs the same objective and stops at a nearer optimum."
    lines = [[name, evidence.cell(place, paper=False)] for name, place in places.items()]
    seeds = evidence.values(places["H2Q"])
    none = evidence.values(places["no rotation"])
    lowered = all(seeds[seed] < none[seed] for seed in seeds.keys() & none.keys())
    verdict = YES if lowered and supervised.least >= 0 else NO
    return Finding(verdict, said, table(["", "mAP"], lines))


CLAIMS = (
    Claim(
        "TALR",
        "The error of the logarithm stays within its bound",
        "Appendix C: Eq. 27 puts a logarithm in place of the sum of 1/t over a tie. Its error is "
        "of the order of 1/(2 N) before the tie minus 1/(2 N) after it (Eq. 37).",
        "the error is at most the bound in every case",
        (SUM, LOSS),
        judge_bound,
    ),
    Claim(
        "FastAP",
        "Fine bins leave nothing to learn",
        "Figure 4c: a list is ranked right, with a small margin. Bins narrower than the margin "
        "give FastAP 1 and a gradient of 0; wider bins still give a gradient.",
        "the gradient is 0 exactly where FastAP is 1, and both kinds of bins occur",
        (MARGIN,),
        judge_bins,
    ),
    Claim(
        "H2Q",
        "Poorly separated classes are where H2Q loses",
        "Figure 5: two classes lie close together on either side of an axis. A rotation of least "
        "quantization error moves both to the diagonal; one that is learned from labels does not.",
        "H2Q lowers mAP with every seed, and the supervised rotation with none",
        (POOR,),
        judge_rotations,
    ),
)
