"""The tokenizer against transformers', chat templates, and the vocabulary checks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from dcoco_core.errors import CheckpointError, RequestError
from dcoco_core.target.chat_template import ChatTemplate
from dcoco_core.target.tokenizer import TargetTokenizer

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is it so?"}],
    [
        {"role": "user", "content": "Prices: 3 € — naïve, 漢字, 🙂\n\n\ttabs"},
        {"role": "assistant", "content": "  spaces  and <|im_end|> inside"},
        {"role": "user", "content": ""},
    ],
]


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> TargetTokenizer:
    return TargetTokenizer(smollm2)


@pytest.fixture
def copied(tiny_llama: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama[0], tmp_path / "model"))


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chats_equal_transformers(
    smollm2: Path,
    tokenizer: TargetTokenizer,
    messages: list[dict[str, str]],
    add_generation_prompt: bool,
) -> None:
    theirs = AutoTokenizer.from_pretrained(smollm2)
    expected = theirs.apply_chat_template(
        messages, add_generation_prompt=add_generation_prompt, return_dict=False
    )
    ids = tokenizer.encode_chat(messages, add_generation_prompt=add_generation_prompt)
    assert ids == expected
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    text = str(messages[-1]["content"])
    assert tokenizer.encode(text) == theirs.encode(text)


def test_default_system_message(tokenizer: TargetTokenizer) -> None:
    ids = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    assert ids[:4] == [1, 9690, 198, 2683]
    assert tokenizer.vocab_size == 49_152
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.decode([1, 9690], skip_special_tokens=False) == "<|im_start|>system"


def test_incomplete_characters_decode_to_the_replacement(tokenizer: TargetTokenizer) -> None:
    ids = tokenizer.encode("🙂")
    assert len(ids) > 1
    assert tokenizer.decode(ids[:1]) == "\N{REPLACEMENT CHARACTER}"
    assert tokenizer.decode(ids) == "🙂"


@pytest.mark.parametrize("token_id", [0, 3, 16])
def test_usable_mask_tokens(tokenizer: TargetTokenizer, token_id: int) -> None:
    tokenizer.check_mask_token(token_id)


@pytest.mark.parametrize(
    ("token_id", "message"),
    [
        (-1, "outside the target's vocabulary"),
        (49_152, "outside the target's vocabulary"),
        (1, "part of every chat"),
        (2, "end-of-text id"),
        (17, "ordinary token '!'"),
    ],
)
def test_unusable_mask_tokens(tokenizer: TargetTokenizer, token_id: int, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        tokenizer.check_mask_token(token_id)


def test_an_id_beyond_the_tokenizer_can_be_a_mask(copied: Path) -> None:
    """Models often have more rows than the tokenizer has tokens."""
    set_json(copied / "config.json", vocab_size=128)
    TargetTokenizer(copied).check_mask_token(127)


def test_vocabularies_must_fit(copied: Path) -> None:
    set_json(copied / "config.json", vocab_size=100)
    with pytest.raises(CheckpointError, match="has id 119, the model only 100 ids"):
        TargetTokenizer(copied)
    set_json(copied / "config.json", vocab_size=None)
    with pytest.raises(CheckpointError, match="has no vocab_size"):
        TargetTokenizer(copied)


def test_eos_ids_may_be_a_list(copied: Path) -> None:
    assert TargetTokenizer(copied).eos_token_ids == {2}
    set_json(copied / "generation_config.json", eos_token_id=[2, 7])
    assert TargetTokenizer(copied).eos_token_ids == {2, 7}
    (copied / "generation_config.json").unlink()
    set_json(copied / "config.json", eos_token_id=5)
    assert TargetTokenizer(copied).eos_token_ids == {5}


def test_chat_without_a_template(copied: Path) -> None:
    tokenizer = TargetTokenizer(copied)
    assert not tokenizer.has_chat_template
    with pytest.raises(CheckpointError, match="has no chat template"):
        tokenizer.encode_chat([{"role": "user", "content": "t5"}])
    assert tokenizer.encode("t5 t6") == [5, 6]


def test_templates_in_the_config(copied: Path) -> None:
    words = "{% for message in messages %}{{ eos_token }} {{ message.content }} {% endfor %}"
    set_json(copied / "tokenizer_config.json", chat_template=words)
    chat = [{"role": "user", "content": "t5"}]
    assert TargetTokenizer(copied).encode_chat(chat) == [2, 5]
    named = [{"name": "tools", "template": "t9"}, {"name": "default", "template": "t8"}]
    eos = {"content": "t3", "special": True}
    set_json(copied / "tokenizer_config.json", chat_template=named, eos_token=eos)
    assert TargetTokenizer(copied).encode_chat(chat) == [8]
    (copied / "chat_template.jinja").write_text("{{ eos_token }} t7")
    assert TargetTokenizer(copied).encode_chat(chat) == [3, 7]


def test_damaged_tokenizers(copied: Path) -> None:
    (copied / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is damaged"):
        TargetTokenizer(copied)


MESSAGES = [{"role": "user", "content": "<a> & 'b'"}, {"role": "assistant", "content": "c"}]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "<a> & \'b\'"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ strftime_now('%d')|length }}", "2"),
        ("{{ bos_token }}{{ add_generation_prompt }}", "<s>True"),
    ],
)
def test_template_language(source: str, text: str) -> None:
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
    ],
)
def test_templates_that_refuse(source: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        ChatTemplate(source, {}).render(MESSAGES)
    assert caught.value.field == "messages"


def test_templates_that_do_not_compile() -> None:
    with pytest.raises(CheckpointError, match="does not compile"):
        ChatTemplate("{% if %}", {})


def set_json(file: Path, **changes: object) -> None:
    value = json.loads(file.read_text())
    value.update(changes)
    file.write_text(json.dumps({key: entry for key, entry in value.items() if entry is not None}))
