"""A small byte-level BPE tokenizer, learnt from the text below, the same on every machine.

Both servers are given the same data: llama.cpp inside the GGUF, MLX-LM as tokenizer.json.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# Only the words matter: they decide which merges are learnt. Common English.
TEXT = """
I a about above across after again against ago all almost along already also although always am among
an and animal another answer any are area around as ask at away back bad be because become been
before began begin being below best better between big bird black blue body book both boy bring
brought build building but by call called came can car care carry case certain change check child
children city class clear close cold color come common complete computer cook could country course
cross cut dark day deep did different do does dog done door down draw dry during each early earth
ease eat either else end energy enough even evening ever every example explain eye face fact fall
family far farm fast father feel feet felt few field figure fill final find fine fire first fish
five floor flow fly follow food foot for force form found four free friend from front full game
garden gave general get girl give given go gold good got great green ground group grow had half hand
happen hard has have he head hear heard heart heat help her here high him himself his hold home hope
horse hot hour house how however hundred idea if important in inch interest into is island it its
just keep kept kind king knew know known land language large last late later laugh lead learn leave
left less let letter level life light like line list listen little live long look low machine made
main make man many map mark may me mean measure men might mile mind minute miss model moment money
month moon more morning most mother mountain move much music must my name near need never new next
night no north nothing notice now number of off often old on once one only open or order other our
out over own page paper part pass past pattern people perhaps person picture piece place plain plan
plant play point poor possible power press problem product pull put question quick quiet quite rain
ran reach read ready real record red remember rest result right river road rock room round rule run
said same saw say school science sea second see seem seen self send sentence set seven several shape
she ship short should show side simple since sing sit six size sleep slow small snow so some song
soon sound south space special spell stand star start state stay step still stood stop story street
strong study such summer sun sure surface system table take talk teach tell ten test than that the
their them then there these they thing think third this those though thought thousand three through
time to today together told too took top toward town travel tree true try turn two under unit until
up upon us use usual valley value very voice wait walk wall want war warm was watch water way we
week weight well went were west what wheel when where which while white who whole why will wind
window winter with within without woman wonder wood word work world would write year yellow yes yet
you young your token prompt context answer memory battery power watt joule energy decode prefill
expert router layer cache
"""

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
BOS, EOS, PAD = "<|endoftext|>", "<|im_end|>", "<|pad|>"
MERGES = 956  # with 256 bytes and 4 specials: 1216 tokens, a multiple of 64, which suits quantised rows

# The template ends in ":", a token that may be sampled: what follows a banned token is not under control.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
)


@dataclass(frozen=True)
class Tokenizer:
    """tokens: by id, the first `plain` are pieces of text, the others special. merges: in order of rank.

    banned: ids that are never to be sampled: all that is not printable ASCII.
    """

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    plain: int
    banned: tuple[int, ...]

    def id(self, token: str) -> int:
        """Id of a token by its text."""
        return self.tokens.index(token)


def byte_symbols() -> list[str]:
    """The character for each byte value in byte-level BPE: itself if it prints, else one from U+0100 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = itertools.count(0x100)
    return [chr(b) if b in prints else chr(next(spare)) for b in range(256)]


def learn_merges(words: list[str], count: int) -> list[tuple[str, str]]:
    """The `count` most frequent adjacent pairs, one after the other; the smaller pair wins a tie."""
    space = byte_symbols()[0x20]
    texts = [*words, *(space + w for w in words)]
    pieces = [[*t] for t in texts]
    pairs = Counter(p for piece in pieces for p in itertools.pairwise(piece))
    merges = []
    while len(merges) < count:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for text, piece in zip(texts, pieces, strict=True):
            if "".join(best) in text:
                pairs.subtract(itertools.pairwise(piece))
                _merge(piece, best)
                pairs.update(itertools.pairwise(piece))
        del pairs[best]
    return merges


def _merge(piece: list[str], pair: tuple[str, str]) -> None:
    """Join every occurrence of `pair` in `piece`, from the left, in place."""
    i = 0
    while i < len(piece) - 1:
        if (piece[i], piece[i + 1]) == pair:
            piece[i : i + 2] = ["".join(pair)]
        i += 1


@functools.cache
def build() -> Tokenizer:
    """The tokenizer; the same data on every call and on every machine."""
    symbols = byte_symbols()
    words = TEXT.split()
    short = [w for w in words if len(w) <= 3]  # most of any text: each has to be one token
    merges = learn_merges([*words, *short * 6], MERGES)
    pieces = list(dict.fromkeys([*symbols, *(a + b for a, b in merges)]))
    tokens = (*pieces, *SPECIALS)
    printable = set(symbols[0x20:0x7F])
    banned = [i for i, t in enumerate(tokens) if i >= len(pieces) or not printable.issuperset(t)]
    return Tokenizer(tokens, tuple(merges), len(pieces), tuple(banned))


def write(folder: Path, ctx: int) -> None:
    """tokenizer.json and tokenizer_config.json, as MLX-LM reads them."""
    tok = build()
    (folder / "tokenizer.json").write_text(json.dumps(_fast_tokenizer(tok)), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": ctx,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _fast_tokenizer(tok: Tokenizer) -> dict:
    """The content of tokenizer.json, in the format of the `tokenizers` library."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": t, **flags} for i, t in enumerate(tok.tokens) if i >= tok.plain],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {t: i for i, t in enumerate(tok.tokens[: tok.plain])},
            "merges": [f"{a} {b}" for a, b in tok.merges],
        },
    }
