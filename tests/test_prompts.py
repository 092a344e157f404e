"""Prompts are exactly as long as asked for, whatever the tokenizer, and the same for the same counts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lib import prompts as p


def bpe(vocab: int, bos: bool = False):
    """A byte-level BPE tokenizer learnt from part of the words, as the servers' are from other text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    corpus = [" ".join(p.WORDS[::2] + p.SHORT), " " + " ".join(p.SHORT)] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet))
    return lambda text: len(tokenizer.encode(text).ids) + bos


TOKENIZERS = {
    "words": lambda text: len(text.split()),
    "letters": len,
    "threes": lambda text: -(-len(text) // 3),
    "bpe": bpe(900),
    "small bpe": bpe(330),
    "bpe with BOS": bpe(900, bos=True),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("ctx", [2, 3, 7, 16, 64, 255, 256, 1000, 4096])
def test_exact_length(name, ctx):
    count = TOKENIZERS[name]
    text = p.prompt(count, ctx, (1, ctx))
    assert count(text) == ctx
    assert text == text.strip() and "  " not in text
    assert set(text.split()) <= {*p.WORDS, *p.SHORT}


def test_the_longest_prompt_takes_few_counts():
    calls = []

    def count(text):
        calls.append(text)
        return TOKENIZERS["bpe"](text)

    assert TOKENIZERS["bpe"](p.prompt(count, 30_720, 1)) == 30_720
    assert len(calls) <= 12


def test_one_token():
    assert TOKENIZERS["bpe"](p.prompt(TOKENIZERS["bpe"], 1, 1)) == 1
    assert len(set(p.prompts(TOKENIZERS["words"], 1, 8, 20, 1))) == 20


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 3000), st.integers(), st.sampled_from(sorted(TOKENIZERS.keys() - {"letters"})))
def test_exact_for_any_length_seed_and_tokenizer(ctx, seed, name):
    assert TOKENIZERS[name](p.prompt(TOKENIZERS[name], ctx, seed)) == ctx


def test_same_seed_and_counts_give_the_same_text_on_two_servers():
    first = p.prompts(bpe(900), 300, 64, 3, 42)
    assert first == p.prompts(bpe(900), 300, 64, 3, 42)
    assert first != p.prompts(bpe(900), 300, 64, 3, 43)
    assert first != p.prompts(bpe(900), 300, 65, 3, 42)


def test_known_text():
    """A change of the generator changes every stored hash: it must be meant."""
    assert p.prompt(TOKENIZERS["words"], 4, (1, "cell")) == "an is it be"
    assert p.prompt_sha256("word") == "98c1eb4ee93476743763878fcb96a25fbc9a175074d64004779ecb5242f645e6"


@pytest.mark.parametrize("ctx", [16, 256])
def test_prompts_of_a_cell_share_no_first_word(ctx):
    texts = p.prompts(TOKENIZERS["bpe"], ctx, 64, 20, 7)
    assert len({text.split()[0] for text in texts}) == 20
    assert {TOKENIZERS["bpe"](text) for text in texts} == {ctx}


def test_more_prompts_than_words_are_still_different():
    texts = p.prompts(TOKENIZERS["words"], 8, 64, len(p.WORDS) + 1, 7)
    assert len(set(texts)) == len(p.WORDS) + 1


@pytest.mark.parametrize(
    ("count", "ctx", "problem"),
    [
        (lambda text: 2 * len(text.split()), 7, "no text of exactly 7 tokens"),
        (lambda text: 0, 5, "no text of exactly 5 tokens"),
        (lambda text: 1000, 5, "no text of exactly 5 tokens"),
        (TOKENIZERS["bpe with BOS"], 1, "no text of exactly 1 tokens"),
        (len, 0, "a prompt of 0 tokens"),
    ],
)
def test_what_cannot_be_hit_is_an_error_after_a_bounded_number_of_counts(count, ctx, problem):
    calls = []
    with pytest.raises(p.PromptError, match=re.escape(problem)) as caught:
        p.prompt(lambda text: calls.append(text) or count(text), ctx, 1)
    assert len(calls) <= p.MAX_CALLS
    assert "\n" not in str(caught.value)


def test_too_few_different_prompts():
    with pytest.raises(p.PromptError, match="prompts of 1 tokens differ"):
        p.prompts(TOKENIZERS["words"], 1, 8, 200, 1)


def test_word_lists_are_clean():
    for words in (p.WORDS, p.SHORT):
        assert len(set(words)) == len(words)
        assert all(re.fullmatch("[A-Za-z]+", word) for word in words)
