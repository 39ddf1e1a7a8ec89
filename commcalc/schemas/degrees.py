"""``commcalc degrees``."""

from __future__ import annotations

from commcalc.schemas.words import Document, Record, flag, keyed, listed, text, whole, words
from commcalc.transformer.work import Framework

RULE = Record("rule", "What a degree must divide", {
    "name": text("Its name, like heads"),
    "key": text("The key of the model that it is about"),
    "value": whole("The size there"),
    "legal": listed(whole("A degree", least=1), "Degrees that it allows"),
})  # fmt: skip
DEGREE = Record("degree", "One degree", {
    "tp": whole("Tensor-parallel degree", least=1),
    "legal": flag("Whether all rules allow it"),
    "reasons": listed(text("One rule"), "Why not"),
    "kv_replication": whole("Copies of each KV head", least=1),
    "padded_vocab_size": whole("Rows of the vocabulary with padding; 0 where the model gives none"),
    "vocab_rows_per_rank": whole("Rows of it on one rank"),
    "padding": keyed(whole("Size"), "What a key would have to be padded to"),
    "hints": listed(text("One way"), "Ways out"),
})  # fmt: skip
DOCUMENTS = {
    "degrees": Document("commcalc/degrees/1", "What commcalc degrees answers", {
        "model": text("Name of the model"),
        "framework": words(Framework, "By whose rules", null=True),
        "rules": listed(RULE, "All rules"),
        "legal": listed(whole("A degree", least=1), "Degrees that all rules allow"),
        "degrees": listed(DEGREE, "Each degree that was asked for"),
    }, lines=[DEGREE]),
}  # fmt: skip
