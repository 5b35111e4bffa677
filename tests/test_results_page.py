"""The page of results says what the rows say, and is made from those that are committed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from generated import (  # noqa: E402
    claims_best,
    claims_budgets,
    claims_fastap,
    claims_h2q,
    claims_made_sets,
    claims_mihash,
    claims_rotations,
    claims_talr,
    evidence,
    found_birds,
    opening,
    results,
)
from generated.claims import CANNOT, MISSED, NO, NONE, OPEN, REACHED, YES, Finding  # noqa: E402
from generated.evidence import Evidence, Place, short  # noqa: E402


def row(name, value, seed=0, bits=None, quantizer="none", **more):
    machine = {"cpu": "a processor", "cores": 2, "gpu": None, "python": "3", "torch": "2"}
    figures = {"mAP": value, "mAP@5000 broken": value, "mAP@5000 retrieved": value}
    return {
        "name": name, "value": value, "seed": seed, "bits": bits, "quantizer": quantizer,
        "vary": {}, "paper_value": None, "worst": value - 0.1, "best": value + 0.1,
        "figures": figures, "differs": "the network", "method": name.split("/")[-1],
        "commit": "0123456789abcdef-dirty", "date": "2026-01-02T03:04:05Z", "machine": machine,
        "shortened": False, **more,
    }  # fmt: skip


def setting_one(ours, rival=0.7, seeds=(0, 1, 2), bits=(12, 24, 32, 48)):
    """Rows of TALR-AP, alpha fixed, and of its rivals, at the lengths of the paper."""
    found = []
    for seed in seeds:
        for length in bits:
            at = {"seed": seed, "bits": length}
            found.append(row("talr/table1-s1/talr-ap-simple-fixed", ours + seed / 100, **at))
            for name in ("dpsh", "dtsh", "mihash", "hashnet"):
                found.append(row(f"talr/table1-s1/{name}", rival + seed / 90, **at))
            for name in ("bre", "machash", "fasthash", "structhash"):
                found.append(row(f"talr/table1-shallow/{name}", rival + seed / 90, **at))
    return found


def test_the_page_is_that_of_the_committed_rows():
    committed = (DOCS / "results.md").read_text("utf-8")
    rows = evidence.load()
    made = results.page(rows, results.pictures(rows))
    assert committed == made, "python docs/generated/results.py"


def test_without_rows_every_claim_says_so():
    found = {claim.title: claim.find(Evidence([])) for claim in results.CLAIMS}
    for title, finding in found.items():
        wanted = {NONE, CANNOT} | ({YES} if title.startswith("Fitting takes") else set())
        assert finding.verdict in wanted, title
    assert sum(f.verdict == CANNOT for f in found.values()) == 3
    assert "No rows yet: [TALR-AP ahead" in results.page(Evidence([]), ())


def test_ahead_everywhere_is_reproduced_and_behind_once_is_not():
    claim = claims_talr.CLAIMS[0]
    good = claim.find(Evidence(setting_one(0.8)))
    assert good.verdict == YES
    assert "Frozen: ahead in 12 of 12 (clearly in 12;" in good.sentence
    assert "frozen, against methods without a network: ahead in 16 of 16" in good.sentence
    assert "| TALR-AP, alpha fixed, frozen | .810 ± .010 | .810 ± .010 |" in good.table
    rows = setting_one(0.8)
    rows += [row("talr/table1-s1/mihash", 0.9 + s, seed=s, bits=24) for s in (0, 1, 2)]
    bad = claim.find(Evidence(rows))
    assert bad.verdict == NO and "Frozen: ahead in 11 of 12" in bad.sentence
    assert "mihash, 24 bits)" in bad.sentence


def test_a_rival_beyond_the_papers_table_is_judged_apart():
    rows = setting_one(0.8)
    rows += [row("talr/table1-s1/hashnet", 0.9, seed=s, bits=24) for s in (0, 1, 2)]
    found = claims_talr.CLAIMS[0].find(Evidence(rows))
    assert found.verdict == YES and found.beyond.verdict == NO
    assert "Frozen, against HashNet: ahead in 3 of 4" in found.beyond.sentence
    assert "HashNet at 24 bits (.900; TALR-AP, alpha fixed .810)" in found.instead


def test_a_claim_is_unfinished_while_a_rival_of_its_table_lacks_rows():
    rows = setting_one(0.8)
    few = [r for r in rows if not (r["name"].endswith("bre") and r["bits"] == 12)]
    assert claims_talr.CLAIMS[0].find(Evidence(few)).verdict == OPEN
    once = claims_talr.CLAIMS[0].find(Evidence(setting_one(0.8, seeds=(0,))))
    assert once.verdict == OPEN and "12 with fewer than two seeds" in once.sentence
    behind = [*few, *(row("talr/table1-s1/dpsh", 0.9, seed=s, bits=12) for s in (0, 1))]
    assert claims_talr.CLAIMS[0].find(Evidence(behind)).verdict == NO  # more rows change nothing
    once = Evidence([*setting_one(0.8, seeds=(0,)), row("talr/table1-s1/dpsh", 0.9, bits=12)])
    assert claims_talr.CLAIMS[0].find(once).verdict == OPEN  # a second seed could turn the mean


def test_fine_tuned_rows_decide_and_frozen_ones_are_told_apart():
    rows = setting_one(0.6)  # behind, frozen
    tuned = [r | {"name": r["name"].replace("table1-s1", "tuned-s1")} for r in setting_one(0.8)
             if "shallow" not in r["name"]]  # fmt: skip
    found = claims_talr.CLAIMS[0].find(Evidence(rows + tuned))
    assert found.verdict == YES and "Fine-tuned, 20 epochs: ahead in 8 of 8" in found.sentence
    assert "frozen: ahead in 0 of 12" in found.beyond.sentence and found.beyond.verdict == NO


def test_mihash_counts_where_it_is_not_fine_tuned():
    assert [said for said, _ in claims_talr.rivals(claims_talr.S1)] == ["DPSH", "DTSH", "MIHash"]
    assert [said for said, _ in claims_talr.rivals(claims_talr.TUNED)] == ["DPSH", "DTSH"]
    assert not any("MIHash" in said for said, _ in claims_best.tuned())


def test_mutual_information_is_blind_to_order_and_precision_is_not():
    lines = claims_mihash.compare_losses().splitlines()[2:]
    cells = [line.split(" | ") for line in lines]
    assert [cell[1] for cell in cells] == [".325", ".325", ".325", ".000"]
    assert cells[0][2].startswith("1.000") and float("0" + cells[2][2].rstrip(" |")) < 0.1
    counts = {"same": [9] + [0] * 32, "other": [0] * 16 + [9] + [0] * 16}
    names = ("mihash", "mihash-wide", "talr-ap")
    two = [row(f"talr/two-layers/{n}", 0.5, bits=32, distances=counts) for n in names]
    assert "MIHash .500 and .000; MIHash" in claims_mihash.tell_difference(Evidence(two))
    assert claims_mihash.tell_difference(Evidence(two[:2])) == ""
    made = row("talr/tuned-s1-long/mihash", 0.5, bits=32, distances=counts)
    assert claims_mihash.share_pairs(Evidence([made]), made["name"])["other class"][16] == 1.0
    shown = claims_mihash.explain(Evidence([made])).table
    assert "| MIHash, fine-tuned (.500), same class | 1.000 |" in shown


def test_signs_of_principal_components_are_told_where_they_are_ahead():
    names = ("mihash", "dpsh", "dtsh", "bre", "machash", "fasthash", "structhash", "itq", "h2q")
    at = [{"seed": s, "bits": b} for s in (1, 2) for b in (32, 64)]
    rows = [row(f"talr/table3/{name}", 0.5, **a) for a in at for name in (*names, "lsh")]
    rows += [row("talr/table3/ndcg-simple", 0.7, **a) for a in at]
    rows += [row("talr/table3/pca-sign", 0.6 if a["bits"] == 32 else 0.75, **a) for a in at]
    found = claims_talr.without_labels(Evidence(rows))
    assert found.verdict == YES and found.beyond.verdict == NO
    assert "plain signs of PCA beat it at 64 bits (-.050)." in found.sentence
    assert opening.tell(found).endswith("plain signs of PCA beat it at 64 bits")


def test_gaps_are_taken_seed_by_seed():
    a = [row("a/b/x", v, seed=s) for s, v in enumerate((0.5, 0.7, 0.9))]
    b = [row("a/b/y", v, seed=s) for s, v in enumerate((0.4, 0.61, 0.79, 0.1))]
    gap = Evidence(a + b).gap(Place("a/b/x"), Place("a/b/y"))
    assert gap.seeds == 3 and gap.mean == pytest.approx(0.1) and gap.clear
    assert gap.deviation == pytest.approx(0.01)
    assert Evidence(a).gap(Place("a/b/x"), Place("a/b/y")) is None


def test_shortened_rows_do_not_count():
    rows = [row("a/b/x", 0.5, shortened=True)]
    assert Evidence(rows).rows == [] and Evidence(rows).mean(Place("a/b/x")) is None


def test_a_recipe_of_one_quantizer_is_found_without_its_name():
    found = Evidence([row("t/x", 0.5, quantizer="itq"), row("t/y", 0.7, quantizer="h2q"),
                      row("t/y", 0.6)])  # fmt: skip
    assert found.mean(Place("t/x")) == 0.5 and found.mean(Place("t/y")) == 0.6
    assert found.mean(Place("t/y", "h2q")) == 0.7


def test_growing_is_judged_by_the_papers_form_first():
    rows = []
    for form, gain in (("simple", 0.1), ("exact", -0.1)):
        for at in ({"seed": s, "bits": b} for s in (1, 2) for b in (12, 24, 32, 48)):
            rows.append(row(f"talr/table1-s1/talr-ap-{form}-fixed", 0.7, **at))
            rows.append(row(f"talr/table1-s1/talr-ap-{form}-grow", 0.7 + gain, **at))
    found = claims_talr.growing(Evidence(rows))
    assert found.verdict == YES and found.beyond.verdict == NO
    assert "Setting 1, exact: ahead in 0 of 4" in found.beyond.sentence
    assert "| setting 1, exact | 12: -.100; 24: -.100; 32: -.100; 48: -.100 |" in found.table


def test_forms_are_alike_while_their_means_lie_near():
    near = [row(f"talr/table1-s1/talr-ap-{form}-fixed", 0.7 + gap, bits=12)
            for form, gap in (("simple", 0.0), ("relaxed", 0.009))]  # fmt: skip
    assert claims_talr.alike(Evidence(near)).verdict == YES
    lone = row("talr/table3/ndcg-simple", 0.8, bits=48)
    assert claims_talr.alike(Evidence([*near, lone])).verdict == OPEN  # nothing to hold it against
    far = [
        row(f"talr/table3/ndcg-{form}", v, bits=48)
        for form, v in (("simple", 0.8), ("relaxed", 0.7))
    ]
    found = claims_talr.alike(Evidence(near + far))
    assert found.verdict == NO and "1 of 2 cases lie within .010" in found.sentence
    assert "ndcg-relaxed at 48 bits, -.100" in found.sentence


def test_ranges_of_ties_must_overlap_and_shrink():
    rows = setting_one(0.72)
    assert claims_talr.tie_ranges(Evidence(rows)).verdict == NO  # as wide at 24 bits as at 12
    narrow = [r | {"worst": r["value"] - 0.05 + r["bits"] / 1000} for r in rows]
    found = claims_talr.tie_ranges(Evidence(narrow))
    assert found.verdict == YES and "40 of 40 pairs" in found.sentence
    assert ".138, .126, .118, .102" in found.sentence


def rotated(gains, losses=("cel", "dch", "dhn", "dpsh", "wglhh", "hyp2"), under="h2q/table1"):
    """Rows of losses with rotations that gain so much over none."""
    return [
        row(f"{under}/{loss}", 0.8 + gain, bits=16, quantizer=name, seed=seed)
        for loss in losses
        for name, gain in ({"none": 0.0} | gains).items()
        for seed in (1, 2)
    ]


def test_h2q_is_held_against_no_rotation_on_the_papers_losses_first():
    good = claims_rotations.improves(Evidence(rotated({"h2q": 0.02})))
    assert good.verdict == YES and "Frozen, the fast solver: ahead in 6 of 6" in good.sentence
    rows = rotated({"h2q": 0.02}) + rotated({"h2q": -0.01}, ["adsh", "hashnet"])
    found = claims_rotations.improves(Evidence(rows))
    assert found.verdict == YES and found.beyond.verdict == NO
    assert "HashNet and ADSH: ahead in 0 of 2" in found.beyond.sentence
    worse = rotated({"h2q": 0.02, "h2q-sgd": -0.02})  # Algorithm 1 counts as the fast solver does
    assert claims_rotations.improves(Evidence(worse)).verdict == NO


def test_itq_is_judged_as_the_authors_ran_it_and_apart_as_it_is_defined():
    authors = "h2q/authors-frozen"
    rows = rotated({"h2q": 0.02, "itq": 0.01})
    assert claims_rotations.itq(Evidence(rows)).verdict == OPEN
    ported = {"h2q": 0.02, "itq": 0.01, "itq-port": -0.01, "random": -0.01}
    rows = rotated(ported, under=authors)
    found = claims_rotations.itq(Evidence([r | {"error": 0.25} for r in rows]))
    assert found.verdict == YES and found.beyond.verdict == NO
    assert "ITQ as the authors ran it lowers 6 of 6, on average -.010" in found.sentence
    assert (
        "none .250" in found.sentence and "changes figures by +.010, H2Q by +.020" in found.instead
    )
    up = rotated({"h2q": 0.02, "itq": 0.01, "itq-port": 0.01}, under=authors)
    assert claims_rotations.itq(Evidence(up)).verdict == NO


def test_penalties_hurt_somewhere_or_the_claim_falls():
    rows = rotated({"h2q": 0.02}) + rotated({"h2q": 0.02}, under="h2q/tuned")
    for loss in claims_h2q.OWN.values():
        for kind, value in (("penalty", 0.79), ("hswd", 0.7)):
            for name in (f"h2q/table2/{loss}-{kind}", f"h2q/tuned-{kind}/{loss}"):
                rows += [row(name, value, bits=16, seed=s) for s in (1, 2)]
    assert claims_h2q.hurts(Evidence(rows)).verdict == YES
    assert claims_h2q.consistently(Evidence(rows)).verdict == YES
    better = [
        r | {"figures": {"mAP@5000 broken": 0.9}} if "penalty" in r["name"] else r for r in rows
    ]
    assert claims_h2q.hurts(Evidence(better)).verdict == NO
    assert claims_h2q.consistently(Evidence(better)).verdict == NO
    frozen = [
        r | {"figures": {"mAP@5000 broken": 0.9}} if "table2" in r["name"] else r for r in rows
    ]
    found = claims_h2q.consistently(Evidence(frozen))  # fine-tuned rows decide, as in the paper
    assert found.verdict == YES and found.beyond.verdict == NO


def curve(kind, values, option, data="omniglot"):
    return [
        row(f"fastap/{data}/{kind}", value + s / 1000, seed=s, vary={option: at})
        for at, value in values.items()
        for s in (0, 1)
    ]


def test_ten_bins_are_best_unless_another_is_ahead():
    good = curve("bins", {2: 0.7, 10: 0.8, 50: 0.79}, "options.bins")
    assert claims_fastap.bins(Evidence(good)).verdict == YES
    bad = claims_fastap.bins(Evidence(good + curve("bins", {20: 0.9}, "options.bins")))
    assert bad.verdict == NO and "20 bins on omniglot (+.100)" in bad.sentence


def test_larger_batches_must_rise():
    good = curve("batch", {16: 0.6, 64: 0.7, 256: 0.8}, "batch_size")
    assert claims_fastap.batches(Evidence(good)).verdict == YES
    bad = curve("batch", {16: 0.6, 64: 0.8, 256: 0.7}, "batch_size", "clinc150")
    found = claims_fastap.batches(Evidence(good + bad))
    assert found.verdict == NO and found.table.index("batch_size 16") < found.table.index("256")


def test_goals_are_met_by_the_best_mean():
    rows = [row("best/s1/a", 0.95, bits=12), row("best/s1/a", 0.89, bits=24)]
    goal = claims_best.CLAIMS[0].find
    assert goal(Evidence(rows)).verdict == MISSED
    rows.append(row("best/s1/b", 0.91, bits=24, quantizer="supervised"))
    found = goal(Evidence(rows))
    assert found.verdict == REACHED and "b, supervised: .910 at 24 bits, 1 seed." in found.sentence


def test_our_best_must_be_clearly_ahead():
    rows = []
    for seed in (0, 1, 2):
        for q, value in (("none", 0.7), ("h2q", 0.72), ("supervised", 0.75)):
            rows += [
                row("h2q/table1/cel", value + seed / 1000, seed=seed, bits=bits, quantizer=q)
                for bits in (16, 32)
            ]
    apart = [
        r | {"figures": {"mAP": r["value"] - r["seed"] ** 2 / 9000}}
        if r["quantizer"] != "supervised"
        else r
        for r in rows
    ]
    near = [
        r | {"figures": {"mAP": 0.7 + r["seed"] / 9}} if r["quantizer"] == "h2q" else r
        for r in rows
    ]
    assert claims_best.same_backbone(Evidence(near)).verdict == MISSED
    assert claims_best.same_backbone(Evidence(apart)).verdict == REACHED


def test_ours_fine_tuned_is_held_against_all_that_are_fine_tuned():
    claim = next(c for c in claims_best.CLAIMS if c.title.endswith("backbone, fine-tuned"))
    ours, theirs = "best/same/mirror-twice", "h2q/tuned/fastap"
    at = [{"seed": s, "bits": b} for b in (32, 16) for s in (1, 2)]
    rows = [row(ours, 0.9 + a["seed"] / 1000, quantizer="supervised", **a) for a in at]
    assert claim.find(Evidence(rows)).verdict == NONE  # nobody to be ahead of
    rivals = [row(theirs, 0.8 + a["seed"] / 900, quantizer="h2q", **a) for a in at]
    assert claim.find(Evidence(rows + rivals[:2])).verdict == MISSED  # at one of two lengths
    rows += rivals
    found = claim.find(Evidence(rows))
    assert (
        found.verdict == REACHED and "| FastAP + h2q | .802 ± .001 | .802 ± .001 |" in found.table
    )
    fallen = [row("h2q/tuned/dch", 0.79 if a["seed"] == 1 else 0.3, **a) for a in at]
    far = claim.find(Evidence(rows + fallen))  # one who falls at a seed is far, but not clearly
    assert far.verdict == MISSED and "Ahead in 4 of 4 comparisons, clearly in 2." in far.sentence
    assert "Ahead, not clearly: tuned/dch at 16 bits (+.357" in far.sentence
    once = [row("h2q/tuned/dch", 1.0 if a["seed"] == 1 else 0.2, **a) for a in at]
    ahead = claim.find(Evidence(rows + once))
    assert ahead.verdict == MISSED
    close = [row("h2q/tuned/dch", 0.9009 + a["seed"] / 10000, **a) for a in at]
    assert claim.find(Evidence(rows + close)).verdict == MISSED  # ahead, but not clearly
    level = row("h2q/tuned-penalty/dch", 0.9, seed=1, bits=32)
    found = claim.find(Evidence([*rows, level]))  # ahead, but of one seed nobody knows how clearly
    assert found.verdict == MISSED and "| DCH with its penalty |  | .900 |" in found.table


def test_teaching_is_shown_beside_learning_from_labels_only():
    alone = [row("h2q/tuned/hashnet", 0.8, seed=s, bits=16) for s in (1, 2)]
    assert claims_best.teaching(Evidence(alone)).verdict == NONE
    more = [
        row("best/same/twice-hashnet", 0.9, seed=s, bits=16, quantizer="supervised") for s in (1, 2)
    ]
    found = claims_best.teaching(Evidence(alone + more)).table
    assert "| HashNet, labelled images only, its signs | .800 ± .000 |" in found
    assert "| HashNet, taught twice, our rotation | .900 ± .000 |" in found
    assert "HyP2" not in found and "taught by five" not in found


def test_an_ingredient_brings_what_lies_between_two_rows():
    before, after = "best/ingredients/frozen-resnet50", "best/s1/resnet50-talr"
    rows = [row(before, 0.8, seed=s, bits=32) for s in (1, 2)]
    assert claims_best.ingredients(Evidence(rows)).verdict == NONE
    rows += [row(after, 0.9 + s / 100, seed=s, bits=32) for s in (0, 1)]
    found = claims_best.ingredients(Evidence(rows))
    assert found.verdict == ""
    assert "ResNet-50, at 160 x 160, 40 epochs | .800 | .910 | +.110 | 1 |" in found.table
    assert "\nMeasured. " in results.page(Evidence(rows), ())


def test_the_page_names_commands_machines_and_commits():
    rows = setting_one(0.8)
    page = results.page(Evidence(rows), ())
    assert "| **reproduced**: Frozen: ahead in 12 of 12; frozen, against methods" in page
    assert "so far" not in page.split("## How to read")[0] and "rows are missing" in page
    assert "| TALR | [TALR-AP ahead of its rivals in setting 1](#talr-ap-ahead-of-its" in page
    assert "`rankbits reproduce talr/table1-s1`: 60 of" in page
    assert "a processor, 2 cores, Python 3, torch 2 (commit `0123456789ab-dirty`)" in page
    assert "\n- All: EfficientNet-lite0 with ImageNet weights, frozen" in page
    assert "\n- dtsh: batches of 125" in page


def test_what_differs_is_said_once_where_methods_share_it():
    texts = {"a": "the network; the rate", "b": "the network", "c": "the network; the rate"}
    rows = [row(f"best/s1/made-{n}", 0.5, differs=text, method=n) for n, text in texts.items()]
    said = results.differences(Evidence(rows), "best/s1")
    assert said.endswith("- All: the network.\n- a, c: the rate.\n")


def test_the_first_sentence_is_said_in_short():
    said = "Ahead in 3 of 4 (least gap +.002). To whom is another matter."
    assert opening.short(Finding(YES, said)) == "Ahead in 3 of 4"
    assert opening.short(Finding(CANNOT, said)) == ""  # a reason, which belongs to its section
    assert opening.short(Finding(YES, "a word " * 50)) == ""  # too long for a table
    assert opening.short(Finding(YES, f"One; two; {'a word ' * 50}")) == "One; two; and more"


def test_times_by_length_are_those_of_the_benchmark():
    found = claims_h2q.times(Evidence([]))
    rows = evidence.read(claims_h2q.BENCHMARKS / "speed_h2q_lengths.jsonl")
    assert found.verdict == YES and len(rows) == 24
    slowest = max(r["median"] for r in rows if "solver" in r["name"])
    assert f"at most {slowest:.0f} s" in found.sentence
    assert len(found.table.splitlines()) == 2 + len(rows) // 4


def test_numbers_are_spelled_as_the_papers_do():
    assert [short(v) for v in (0.8, -0.012, 1.0, 0.0)] == [".800", "-.012", "1.000", ".000"]


def test_birds_reach_their_goal_only_by_several_seeds():
    goal = found_birds.beat_best(found_birds.FROZEN)
    seeds = {0: 0.50, 1: 0.52, 2: 0.49}
    ours = [row("fastap/cub-frozen/fastap-40-bins", v, seed=s) for s, v in seeds.items()]
    theirs = [row("fastap/cub-frozen/margin", v - 0.02, seed=s) for s, v in seeds.items()]
    theirs += [row("fastap/cub-frozen/triplet", v - 0.01, seed=s) for s, v in seeds.items()]
    theirs[-1]["value"] += 0.002
    found = goal(Evidence(ours + theirs))
    assert found.verdict == REACHED
    best = "R@1 minus that of triplet margin, the best other loss: +.009; deviation .001"
    assert best in found.sentence
    assert found.table.count("\n") == 5
    once = goal(Evidence([r for r in ours + theirs if r["seed"] == 0]))
    assert once.verdict == MISSED and "one seed, so the deviation is unknown" in once.sentence


def test_lengths_without_rows_have_no_column():
    rows = Evidence([row("x/y", 0.8, bits=16), row("x/z", 0.7, bits=32)])
    lines = [("y", Place("x/y")), ("z", Place("x/z")), ("none", Place("x/none"))]
    assert evidence.grid(rows, lines, [2, 16, 32, 64]) == (
        "|  | 16 bits | 32 bits |\n|---|---|---|\n| y | .800 |  |\n| z |  | .700 |\n"
    )


def by_categories(*gains, data="omniglot"):
    """Rows of one, two, three, ... categories in a batch, each ahead of two by its gain."""
    name = f"fastap/supplement-a/{data}"
    return [
        row(name, 0.7 + gain + seed / 100 + seed * gain / 10, seed=seed, vary={"together": n})
        for n, gain in enumerate(gains, 1)
        for seed in (0, 1, 2)
    ]


def test_one_category_must_be_behind_two_and_more_not_ahead():
    judge = claims_fastap.categories
    assert judge(Evidence(by_categories(-0.02, 0, -0.01))).verdict == YES
    assert judge(Evidence(by_categories(0.02, 0, -0.01))).verdict == NO
    beaten = judge(
        Evidence(by_categories(-0.02, 0, 0.03) + by_categories(-0.01, 0, data="clinc150"))
    )
    assert beaten.verdict == NO
    assert "3 on omniglot (+.033)" in beaten.instead
    assert "clinc150, 1: -.011" in beaten.sentence


def test_the_error_of_a_logarithm_must_stay_within_its_bound():
    judge, tie = claims_made_sets.judge_bound, {"options.before": 1}
    rows = [
        row("talr/appendix-c/sum", share, vary=tie | {"options.tied": n})
        for n, share in ((2, 0.7), (10, 0.9))
    ]
    rows.append(row("talr/appendix-c/loss", 0.02, bits=12, vary={"options.form": "simple"}))
    held = judge(Evidence(rows))
    assert held.verdict == YES and "by form: simple 0.02" in held.sentence
    assert "| 1 before | .700 | .900 |" in held.table and "simple | .020 |" in held.table
    rows.append(row("talr/appendix-c/sum", 1.1, vary=tie | {"options.tied": 100}))
    assert judge(Evidence(rows)).verdict == NO


def test_fine_bins_leave_nothing_to_learn_only_where_the_gradient_is_nothing():
    def judge(*points):
        rows = [
            row("fastap/fig4c", value, vary={"options.bins": bins},
                figures={"FastAP": value, "gradient": gradient})
            for bins, value, gradient in points
        ]  # fmt: skip
        return claims_made_sets.judge_bins(Evidence(rows))

    held = judge((10, 0.9, 0.5), (80, 1.0, 0.0))
    assert held.verdict == YES and "With 80 bins FastAP is 1" in held.sentence
    assert judge((10, 0.9, 0.5), (80, 1.0, 0.1)).verdict == NO
    assert judge((10, 0.9, 0.5)).verdict == NO


def test_h2q_loses_where_classes_are_poorly_separated():
    def judge(h2q, supervised):
        values = {"none": 0.9, "h2q": h2q, "itq": 0.9, "supervised": supervised}
        return claims_made_sets.judge_rotations(
            Evidence(
                row("h2q/fig5", value, seed=s, bits=2, quantizer=name)
                for name, value in values.items() for s in (0, 1)
            )
        )  # fmt: skip

    assert judge(0.5, 0.9).verdict == YES
    assert judge(0.95, 0.9).verdict == NO
    assert judge(0.5, 0.8).verdict == NO


def test_budgets_are_compared_at_equal_rate_and_epochs():
    rows = [
        row(f"talr/tuned-s1-trials/{name}", value, bits=32, validation=value / 2,
            vary={"lr": 3e-4, "epochs": epochs})
        for name, epochs, value in (
            ("talr-ap-fixed", 40, 0.85), ("talr-ap-fixed", 80, 0.8), ("hashnet", 40, 0.84),
        )
    ]  # fmt: skip
    found = claims_budgets.compare_budgets(Evidence(rows))
    assert "TALR-AP, alpha fixed .850 (2 trials), HashNet .840 (1 trial)" in found.sentence
    assert "ahead of HashNet in 1 of 1 trials" in found.sentence


def test_birds_are_judged_by_rank_one_and_apart_by_map_at_r():
    def at(name, value, precision, seed):
        figures = {"mAP": value, "MAP@R": precision}
        return row(f"fastap/cub-frozen/{name}", value, seed=seed, figures=figures)

    rows = [at("fastap", 0.4 + s / 100, 0.2 + s / 90, s) for s in (0, 1, 2)]
    rows += [at("contrastive", 0.5 + s / 100, 0.1, s) for s in (0, 1, 2)]
    found = found_birds.beat_all("fastap/cub-frozen")(Evidence(rows))
    assert found.verdict == NO and found.beyond.verdict == YES
    assert found.beyond.sentence.startswith("In MAP@R: ahead in 1 of 1")
