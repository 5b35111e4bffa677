"""The sentences of the page on trained bits of texts."""

OPENING = """# Bits trained on texts

Training with a ranking loss makes better bits of texts; on SciFact only for documents that training
queries ask for. This page compares, for MiniLM-L6-v2 (384 floats a text, cut at 96 tokens):

- *trained* bits: a layer of bits was trained on top of the network, which stays as it is;
- *network* bits: all layers were trained;
- bits of the untrained model: by `Projection`, by `Reconstruction`, and by sentence-transformers'
  binary quantisation of the first dimensions, with and without its rescoring of 40 candidates.

Only the code of an item is stored. A *float question* compares the query's floats with the items'
bits. There are two sets:

- **SciFact**: 300 test claims search for their evidence among 5,183 abstracts. 809 other claims are
  trained on.
- **CLINC150**: 1,500 short test texts search for texts of their intent among 3,000 others. None of
  these texts was trained on, but all 150 intents were.

"""
CAVEAT = """
Lines show float questions, unless they say Hamming or rescored. *Floats* are those of the untrained
model. nDCG@10 is the mean over all orders of ties, and over seeds.

**Read SciFact's figures with care.** Test claims share abstracts with training claims: only 104 of
the 300 ask for abstracts that are in no training pair. We call these claims new. Expect a gain for
documents that your training queries ask for, and not for others. For the others an untrained
`Reconstruction` is about as good, and better at 64 bits.

- *Trained*: the settings were chosen on claims whose abstracts were held out of training, and have
  a small rate. 256 bits are ahead of an untrained `Projection` on all claims, and no better on the
  new ones.
- *Trained further*: with ten times that rate (the only rate of a first run) the bits are ahead of
  the untrained floats on all claims, but behind them on the new ones. The layer learns where the
  abstracts of training pairs lie.
- *Network*: trained in the same way, the whole network is further ahead of the untrained floats on
  all claims, and also behind them on the new ones. Batches of 4,096 texts instead of 128 bring 4
  points on all claims in a tenth of the time, and nothing on the new ones (a table under SciFact
  has both).

The seeds of trained bits draw the batches; each number of bits starts from one `Projection`. All
but the network is trained in single precision. The same layers trained in bfloat16 on an H200 are
up to 4 points lower; those rows are among [all rows](benchmarks.md).

"""
EXAMPLE = """
## How to train them

On the command line, from labels or from queries with judgements (see [texts](texts.md)):

```
rankbits train texts.jsonl --bits 256 -o notes                       # labels in the table
rankbits train corpus.jsonl --queries queries.jsonl --qrels train.tsv --bits 256 -o notes
```

Or inside sentence-transformers' own trainer, with any of its models:

```python
from rankbits.losses import FastAP, Nested
from rankbits.texts import BitsEvaluator, RankingLoss, add_bits

add_bits(model, some_texts, 256)                  # starts as a Projection
loss = RankingLoss(model, Nested(FastAP(bins=20), (64, 128)), signs="database", chunk=64)
evaluator = BitsEvaluator(queries, documents, relevance=grades, prefixes=(64, 128))
SentenceTransformerTrainer(
    model, args, train_dataset=pairs, loss=loss, evaluator=evaluator
).train()
```

The first 64 and 128 bits of such a model are codes of their own (*nested* below).
"""
