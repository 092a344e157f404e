"""Synthetic prompts whose content is exactly as many tokens as asked for, in the server's own tokens."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence

from lib.files import TinymoeError

Count = Callable[[str], int]
"""Tokens of a text, without chat template, as the server that will get the prompt counts them."""

MAX_CALLS = 100
"""Most calls of `count` for one prompt. Five are usual; each may be an HTTP request with 150 kB of text."""

_SAMPLE = 1000  # words of the first count, which only tells how many tokens a word is
_FIRST_GUESS = 0.75  # words a token before it

_COMMON = """
able about above accept across action active actor adult after again against agree air allow almost alone
along already always among amount angle animal answer apple area arm army around arrive art autumn away baby
back bag ball bank basic basket beach bear beautiful because become before begin behind believe bell below
beside best better between beyond bird birth black blood blue board boat body bone book border both bottle
bottom bowl box boy branch brave bread break breakfast bridge bright bring broad brother brown build burn
business busy butter button buy cake call camera camp capital captain car card care carry case castle cat
catch cause centre certain chain chair chance change cheap check chicken chief child choice choose circle
city class clean clear clever climb clock close cloth cloud coast coat coffee cold collect colour come common
compare complete cook cool copper copy corn corner correct cost cotton count country couple course cover cow
cross crowd cry cup current custom cut dance danger dark date daughter day dead deal dear decide deep deer
degree desert design desk detail develop different dinner direct discover dish distance divide doctor dog
door double doubt down draw dream dress drink drive drop dry during dust duty each early earth east easy eat
edge effect egg eight either electric eleven empty end enemy engine enjoy enough enter equal escape evening
event ever every exact example except expect explain eye face fact fail fair fall family famous far farm fast
father favour fear feather feed feel fence fever few field fight figure fill final find fine finger finish
fire first fish five flag flat flight floor flow flower fly follow food foot force foreign forest forget form
forward four free fresh friend front fruit full future game garden gate gather general gentle gift girl give
glad glass goat gold good grain grand grass great green ground group grow guard guess guest guide hair half
hall hand happy harbour hard harvest hat head health hear heart heat heavy height help high hill history hold
hole holiday home honest hope horse hospital hot hotel hour house huge human hundred hungry hunt hurry ice
idea important inch include indeed industry inside instead iron island job join journey judge jump keep key
kind king kitchen knee knife know ladder lady lake lamp land language large last late laugh law lead leaf
learn leather leave left leg lemon length lesson letter level library lift light like line lion list listen
little live long look lose loud love low lucky machine main make man many map march mark market master match
matter meal mean measure meat meet member memory metal method middle mile milk mind mine minute mirror modern
moment money month moon morning mother motor mountain mouth move much music must nail name narrow nation
nature near neck needle never new news next night nine noise north nose note nothing notice now number ocean
offer office often oil old once one only open orange order other outside over own page paint pair paper
parent park part party pass past path pay peace pencil people perfect person picture piece place plain plan
plant plate play please plenty pocket point poor port possible post potato pound power practice prepare
present press pretty price print prize problem produce promise proper prove public pull pupil push quarter
queen question quick quiet quite rabbit race radio rain raise reach read ready real reason receive record red
region remember repeat reply report rest result return rice rich ride right ring rise river road rock roof
room root rose rough round row royal rule run safe sail salt same sand save say school science sea search
season seat second secret seed seem sell send sense serious serve seven several shade shape share sharp sheep
sheet shelf shell shine ship shirt shoe shop shore short shoulder shout show side sign silver simple since
sing sister six size skill skin sky sleep slow small smell smile smoke smooth snow soap social soft soil
soldier some song soon sort sound soup south space speak special speed spell spend spoon spring square stage
stand star start state station stay steam steel step stick still stone stop store storm story straight
strange stream street strong student study subject success sudden sugar suit summer sun supper sure surface
surprise sweet swim table tail take talk tall taste teach team tell ten test thank their thick thin thing
think third thirty thousand three through ticket tide tiger time tired title today together tomorrow tool
tooth top total touch toward tower town trade train travel tree trip trouble true trust turn twelve twenty
twice two uncle under until useful usual valley value various very view village visit voice wait walk wall
want warm wash watch water wave way wear weather week weight welcome well west wheat wheel where white whole
wide wife wild wind window wine winter wire wise wish woman wonder wood wool word work world worry write
wrong year yellow yesterday young
"""
_CLOSING = "a so it on to in at by we no up he go if or my us an do as be me is of I"

WORDS = tuple(_COMMON.split())
SHORT = tuple(_CLOSING.split())
"""Words of one token in every tokenizer met so far: they close the last gap to the target."""


class PromptError(TinymoeError):
    """A prompt of the wanted length cannot be made with this tokenizer."""


def prompt(count: Count, ctx: int, seed: tuple[object, ...] | int | str) -> str:
    """Text of exactly `ctx` tokens by `count`: common words in random order, one space between them.

    It depends on the seed and on the counts alone, so two servers that tokenize alike get the same text.
    Raises PromptError if `ctx` is not positive or is not hit within MAX_CALLS counts.
    """
    if ctx < 1:
        raise PromptError(f"a prompt of {ctx} tokens cannot be made; ask for 1 or more")
    rng = _rng(seed)
    counted = _Counted(count, ctx)
    words = _draw(rng)
    try:
        text = _approach(counted, words, ctx)
        return _close_gap(counted, text, rng, ctx)
    except _Exhausted:
        raise PromptError(
            f"no text of exactly {ctx} tokens after {MAX_CALLS} tries (nearest: {counted.nearest}); "
            "choose another prompt length or seed, or check the server's token count"
        ) from None


def prompts(count: Count, ctx: int, gen: int, n: int, seed: tuple[object, ...] | int | str) -> list[str]:
    """`n` prompts of one cell, all different and each `ctx` tokens long; `gen` is part of their seed.

    Up to a quarter of the word list no two begin with the same word, so that no prefix is shared beyond the
    chat template and a prefix cache has nothing to give. Raises PromptError if there are not `n` such texts.
    """
    key = (*seed, ctx, gen) if isinstance(seed, tuple) else (seed, ctx, gen)
    whole = 4 * n > len(WORDS)
    texts: dict[str, str] = {}
    for index in range(n):
        for attempt in range(MAX_CALLS):
            text = prompt(count, ctx, (*key, index, attempt))
            opening = text if whole else text.split(" ", 1)[0]
            if opening not in texts:
                texts[opening] = text
                break
        else:
            raise PromptError(f"only {index} of {n} prompts of {ctx} tokens differ; ask for fewer requests")
    return list(texts.values())


def prompt_sha256(text: str) -> str:
    """SHA-256 of a prompt's UTF-8 text: the same hash on two backends means the same prompt."""
    return hashlib.sha256(text.encode()).hexdigest()


class _Exhausted(Exception):
    """Too many counts for one prompt."""


class _Counted:
    """`count` with its calls bounded and the count nearest to the target remembered for the error."""

    def __init__(self, count: Count, ctx: int) -> None:
        self._count, self._ctx, self.calls, self.nearest = count, ctx, 0, 0

    def __call__(self, text: str) -> int:
        if self.calls == MAX_CALLS:
            raise _Exhausted
        self.calls += 1
        tokens = self._count(text)
        if abs(tokens - self._ctx) < abs(self.nearest - self._ctx):
            self.nearest = tokens
        return tokens


def _rng(seed: tuple[object, ...] | int | str) -> random.Random:
    parts = seed if isinstance(seed, tuple) else (seed,)
    return random.Random("tinymoe/" + "/".join(map(str, parts)))


def _draw(rng: random.Random) -> Iterator[str]:
    while True:
        yield WORDS[int(rng.random() * len(WORDS))]  # random() alone is promised to be stable across Pythons


def _approach(counted: _Counted, words: Iterator[str], ctx: int) -> str:
    """The first words of the stream that make at most `ctx` tokens and, as a rule, nearly as many."""
    drawn: list[str] = []
    low, high = 0, ctx + 1  # so many words are known to fit, and so many not: a word is a token or more
    near = min(24, 4 + ctx // 256)  # tokens from the target at which short words take over
    low_tokens, guess = 0, max(1, min(int(ctx * _FIRST_GUESS), _SAMPLE))
    while high - low > 1 and ctx - low_tokens > near:
        drawn.extend(next(words) for _ in range(guess - len(drawn)))
        tokens = counted(" ".join(drawn[:guess]))
        if tokens <= ctx:
            low, low_tokens = guess, tokens
        else:
            high = guess
        aim = guess + (ctx - near / 2 - tokens) * guess / max(tokens, 1)
        guess = min(max(int(aim), low + 1), high - 1)
    return " ".join(drawn[:low])


def _close_gap(counted: _Counted, text: str, rng: random.Random, ctx: int) -> str:
    """Add short words until the count is exact: all that are missing at once if each is a token, else one by
    one; where none of three fits, give a word back and try others."""
    tokens = counted(text) if text else 0
    while tokens != ctx:
        missing = " ".join(_shuffled(SHORT, rng)[: ctx - tokens])
        for filler in (missing, *_fillers(rng)):
            longer = f"{text} {filler}".strip()
            longer_tokens = counted(longer)
            if tokens < longer_tokens <= ctx:
                text, tokens = longer, longer_tokens
                break
        else:
            text = text.rpartition(" ")[0]
            tokens = counted(text) if text else 0
    return text


def _fillers(rng: random.Random) -> list[str]:
    """Two short words and one of a letter, so that odd gaps close even where a token is a letter."""
    words = _shuffled(SHORT, rng)
    letter = next(word for word in words if len(word) == 1)
    return _shuffled([letter, *words[:2]], rng)


def _shuffled(words: Sequence[str], rng: random.Random) -> list[str]:
    return sorted(words, key=lambda _: rng.random())
