#!/usr/bin/env python3
"""Makes the golden files of the tokenizer tests: python make_goldens.py MODEL.gguf

MODEL.gguf is SmolLM2-135M-Instruct (see README.md). Made with Python 3.11 (Unicode 14), tokenizers
0.23.3, sentencepiece 0.2.3, mistral-common 1.13.1, gguf 0.19.0. The texts depend on the seed alone.

The oracle for byte-level BPE is `tokenizers`, set up as the makers of the models published it.
transformers' own GGUF loader is none: it leaves out the pre-tokenizer's first stage, which cuts
every number character off (" ½" is two words).
"""

import json
import pathlib
import random
import shutil
import sys
import unicodedata

import mistral_common
import sentencepiece
import tokenizers
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240601
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CONTROL = 3  # tokenizer.ggml.token_type

SAMPLES = (
    """Hello, world! It's what they've said: I'll be there, we're here, she'd go, I'm fine, don't.
HELLO, WORLD! IT'S WHAT THEY'VE SAID; WE'LL SEE. I'D'VE 'tis 'S 'ſ
Der Führer? Nein: Straße, Müller, groß, Größe, ÄÖÜ äöü ẞ — „Anführung“ …
L'été où naïve façade çà et là; œuvre, Noël; ça va? «oui»
El niño comió piñata. ¿Qué? ¡Sí! Año 2024.
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Őrült űr.
Привет, мир! Съешь ещё этих мягких французских булок, да выпей чаю. Ґ є ї
Καλημέρα κόσμε. Άνθρωπος ΐ ΰ ς Ω
שלום עולם. בְּרֵאשִׁית בָּרָא אֱלֹהִים
مرحبا بالعالم. السَّلامُ عَلَيْكُمْ ‏١٢٣‏ پچگ لا ﷺ
नमस्ते दुनिया। क्षत्रिय ज्ञान १२३ क़ ड़
বাংলা ভাষা কো ১২৩
வணக்கம் உலகம் கொ ௧௨௩
สวัสดีชาวโลก ภาษาไทย ๑๒๓ น้ำ
ລາວ ໑໒໓ မြန်မာ ၁၂၃ ខ្មែរ ១២៣ བོད་ཡིག ༡༢༣
你好，世界。中文测试：我是谁？你是谁？一二三〇 㐀 𠀀 𪜀
こんにちは世界。カタカナ ﾊﾝｶｸ がぎぐげご が が 〜 ー ゞ
안녕하세요 세계. 깰 뷁 한글 각 각
ⵣ ᏣᎳᎩ ꮳꮃꭹ አማርኛ ᠮᠣᠩᠭᠣᠯ ᐃᓄᒃᑎᑐᑦ 𞤀𞤣𞤤𞤢𞤥 𐍈 𐤀 𓀀 𒀀
😀 😃 👍🏽 👨‍👩‍👧‍👦 👩🏾‍💻 🏳️‍🌈 🏴‍☠️ ❤️‍🔥 ☺️ ☺︎ 🫠 🇩🇪🇫🇷🇯🇵 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ #️⃣ ©️
é é ḗ ḗ ṩ ṩ ṩ Å Å Å ﬁ ﬀ ĳ ǆ ½ ⅓ ⅔ ² ³ ₂ ⁴ ① ⑳ ⅷ Ⅻ ㊿ 〇 ๒ ٣ ۴ ५ ௫ 𝟙 𝟘𝟡 🄁 𐄇
ℕ ℤ ∑ ∫ √2 ≈ 1.414 ± 0.001 × 10⁻³ ≤ ≠ ∞ π α→β ⇒ ¬∃x∈ℝ: x²<0
0 1 12 123 1234 12345 1,234,567.89 -42 +7 3.14e-10 0x1F 1_000 007 2024-06-01T12:34:56Z 127.0.0.1 v1.2.3 10% $5.00 €3 50¢ 1st 2nd
def f(x):\n    return x**2 + 1  # comment\n\nif __name__ == "__main__":\n\tprint(f"{f(3)!r}")\n
#include <vector>\nint main() { std::vector<int> v{1,2,3}; for (auto& x : v) x <<= 1; return v[0] != 2; }\r\n
SELECT * FROM "t" WHERE a >= 10 AND b LIKE '%x_%' ORDER BY c DESC; -- end
<div class="a b" id='c'>&amp; &lt; &#x27; <br/></div><!-- x -->
{"a": [1, 2.5e3, null, true], "b\\n": "\\u00e9", "c": {"d": "\\\\"}}
fn main() -> Result<(), Box<dyn Error>> { let x: &'static str = "a"; Ok(()) }
https://example.com/a/b?c=d&e=%20f#g user.name+tag@example.co.uk C:\\Users\\x ~/.bashrc /usr/lib/x86_64
$\\frac{a}{b}$ \\begin{align} x &= y \\\\ \\end{align} `code` **bold** _it_ ~~s~~ [l](u) ![i](u) > q
- item\n- item two\n  - nested\n\n1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |
camelCaseWord snake_case_word kebab-case-word SCREAMING_CASE XMLHttpRequest iPhone15ProMax
antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis supercalifragilistic
... .. . !!! ?!?! ---- ==== **** //// \\\\\\\\ ~~~~ ____ (((())) [[]] {{}} <<>> "" '' `` ,,, ;;; ::: @@@ ### $$$ %%% ^^^ &&& |||
'sup y'all 'twas rock'n'roll O'Reilly's the '90s' d'être qu'il 'LL 'Ve 'rE 'M 'D 'T ’s ’t
""".splitlines())
LOOKALIKES = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<empty_output>",
    "<|im_end", "|>", "<|", "im_end|>", "<|im_end|>>", "<<|im_end|>", "< |im_end|>", "<|im_end |>",
    "<|IM_END|>", "<|im＿end|>", "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
    "<0x0A>", "<0x41>", "▁", "▁▁", "▁a", "Ġ", "Ġthe", "Ċ", "ĉ", "[PAD]", "<|user|>", "<pad>",
    "<|begin_of_text|>",
]
SPACES = [
    " ", "\n", "\t", "\r", "\r\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2000", "\u2003",
    "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b",
    "\u2060", "\ufeff", "\x1c", "\x1f",
]
ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
BY_GROUP = {}
for code_point in ASSIGNED:
    BY_GROUP.setdefault(unicodedata.category(chr(code_point))[0], []).append(code_point)
NUMBERS = [chr(c) for c in BY_GROUP["N"]]
MARKS = [chr(c) for c in BY_GROUP["M"]]


def hard_texts(rng):
    """At least 2,000 different texts, longest last in each kind."""
    texts = [
        "", "\x00", "\x7f", "\ufffd", "\uffff", "\U0010ffff", "\ue000", "\U000f0000",
        "\u2029 \ua3e4", " ½", "½", "a½ b", "Führer", "\U00040000", "\x80\x81\x9f",
    ]
    for sample in SAMPLES:
        texts.append(sample.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r"))
    words = [w for sample in SAMPLES for w in sample.split(" ") if w]
    texts += LOOKALIKES + [chr(c) for c in range(1, 0x100)]
    for space in SPACES:
        texts += [space * n for n in (2, 3, 7)]
        texts += [f"a{space}b", f"a{space}{space}b", f"{space}a{space}", f"1{space} {space}!"]
    for _ in range(90):  # runs of white space between words
        texts.append("".join(
            rng.choice(["a", "the", "1", "!", "é", "中", ""]) + "".join(
                rng.choice(SPACES[:5] if rng.random() < 0.7 else SPACES)
                for _ in range(rng.randint(0, 5)))
            for _ in range(6)))
    for _ in range(120):  # special-token look-alikes among words
        texts.append("".join(
            rng.choice(LOOKALIKES if rng.random() < 0.6 else words + [" ", "\n"])
            for _ in range(rng.randint(2, 6))))
    for _ in range(160):  # numbers of all scripts
        texts.append("".join(
            rng.choice([rng.choice(NUMBERS), rng.choice(NUMBERS), str(rng.randint(0, 99999)),
                        " ", ".", "a", "½"])
            for _ in range(rng.randint(1, 8))))
    for _ in range(100):  # combining marks
        texts.append("".join(
            rng.choice(["a", "e", " ", "क", "א", "1", "."]) + "".join(
                rng.choice(MARKS if rng.random() < 0.4 else
                           ["\u0301", "\u0308", "\u0323", "\u200d", "\ufe0f"])
                for _ in range(rng.randint(0, 3)))
            for _ in range(rng.randint(1, 5))))
    emoji = SAMPLES[19].split(" ")
    emoji += ["\u200d", "\ufe0f", "🏽", "🇦", "🇿", "\U000e0067", "\U000e007f"]
    for _ in range(100):  # emoji and their parts, in and out of order
        texts.append("".join(
            rng.choice(emoji + [" ", "a", "👩", "🤝"]) for _ in range(rng.randint(1, 5))))
    for _ in range(320):  # words of several scripts
        texts.append(
            rng.choice(["", " ", "\n"]).join(rng.choice(words) for _ in range(rng.randint(1, 5))))
    for _ in range(220):  # any assigned characters
        texts.append("".join(chr(rng.choice(ASSIGNED)) for _ in range(rng.randint(1, 6))))
    for _ in range(300):  # any assigned characters, each category as often as the others
        texts.append("".join(
            chr(rng.choice(BY_GROUP[rng.choice(sorted(BY_GROUP))]))
            for _ in range(rng.randint(1, 8))))
    for _ in range(80):  # unassigned and private code points
        texts.append("".join(
            chr(rng.choice([rng.randrange(0xE000, 0xF900), rng.randrange(0xF0000, 0x110000),
                            rng.randrange(0x40000, 0xE0000), 0x61]))
            for _ in range(rng.randint(1, 4))))
    for _ in range(160):  # ASCII noise and code
        texts.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randint(1, 30))))
    for _ in range(60):  # contractions in every case
        texts.append("".join(
            rng.choice(["it", "IT", "é", "1", " ", ""]) + rng.choice("'’") + rng.choice([
                "s", "S", "ſ", "t", "T", "re", "RE", "rE", "ve", "VE", "m", "ll", "LL", "lL", "d",
                "D", "x",
            ]) for _ in range(4)))
    for unit, times in (("a", 1000), ("ab", 400), ("é", 300), ("中", 200), ("0", 300), (" ", 1000),
                        ("\n", 500), ("=", 900), ("😀", 80), ("\t ", 200), ("aA", 300),
                        ("the ", 200), ("\u0301", 100), ("—", 200)):
        texts.append(unit * times)
    return list(dict.fromkeys(texts))


def byte_level_bpe(vocabulary, merges, name):
    """A `tokenizers` pipeline; name is the pre-tokenizer's in the GGUF key tokenizer.ggml.pre."""
    model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "llama-bpe")
    tokenizer = Tokenizer(model)
    if name == "smollm":
        stages = [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    elif name == "gpt-2":
        stages = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        pattern = {"llama-bpe": LLAMA3, "qwen2": QWEN2}[name]
        stages = [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def ids_of(tokenizer, text, parse_special):
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer.encode(text, add_special_tokens=False).ids


def random_added_tokens(rng, first_id):
    """Tokens with flags over a small alphabet: they meet, overlap and touch words and spaces."""
    contents = rng.sample([
        "<a>", "<a><b>", "<b>", "b>", "ab", "a", " x", "x ", "\n", "<é>", "é", "_", "1", "··", "<a>!"
    ], 4)
    return [{
        "id": first_id + i, "content": content, "special": rng.random() < 0.5,
        "lstrip": rng.random() < 0.4, "rstrip": rng.random() < 0.4,
        "single_word": rng.random() < 0.4, "normalized": rng.random() < 0.4,
    } for i, content in enumerate(contents)]


def added_token_cases(rng, vocabulary, merges, count):
    parts = [
        "<a>", "<b>", "<a><b>", "ab", "a", "b>", "x", " ", "  ", "\t\n", "\u3000", "é", "e\u0301",
        "_", "-", "1", "··", "!", "\u200d", "Ⓐ", "\u0301", "x ", "<é>", "",
    ]
    cases = []
    for _ in range(count):
        tokens = random_added_tokens(rng, len(vocabulary))
        tokenizer = byte_level_bpe(vocabulary, merges, "gpt-2")
        for token in tokens:
            flags = {key: token[key] for key in token if key not in ("id", "content")}
            added = AddedToken(token["content"], **flags)
            (tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens)([added])
            # A content that is in the vocabulary already keeps its id.
            token["id"] = tokenizer.token_to_id(token["content"])
        texts = ["".join(rng.choice(parts) for _ in range(rng.randint(1, 7))) for _ in range(8)]
        cases.append({
            "tokens": tokens,
            "texts": [{
                "text": text,
                "parsed": ids_of(tokenizer, text, True),
                "plain": ids_of(tokenizer, text, False),
            } for text in texts],
        })
    return cases


def write_lines(name, rows):
    with open(HERE / name, "w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    assert unicodedata.unidata_version == "14.0.0", "the texts keep to what PCRE2 10.42 knows"
    fields = GGUFReader(sys.argv[1]).fields
    read = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens = read("tokens")
    merge_lines = read("merges")
    assert read("pre") == "smollm"
    control = [i for i, kind in enumerate(read("token_type")) if kind == CONTROL]
    vocabulary_file = {
        "pre_tokenizer": "smollm",
        "control": control,
        "bos_id": read("bos_token_id"),
        "eos_id": read("eos_token_id"),
        "unknown_id": read("unknown_token_id"),
        "padding_id": read("padding_token_id"),
        "add_bos": read("add_bos_token"),
        "tokens": tokens,
        "merges": merge_lines,
    }
    with open(HERE / "smollm2.tokenizer", "w", encoding="utf-8", newline="\n") as file:
        json.dump(vocabulary_file, file, ensure_ascii=False, indent=0, separators=(",", ":"))
        file.write("\n")
    data = pathlib.Path(mistral_common.__file__).parent / "data"
    shutil.copyfile(data / "mistral_instruct_tokenizer_240323.model.v3", HERE / "mistral_v3.model")
    sentences = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "mistral_v3.model"))

    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(line.split(" ")) for line in merge_lines]
    special = [AddedToken(tokens[i], special=True, normalized=False) for i in control]
    pipelines = {
        name: byte_level_bpe(vocabulary, merges, name)
        for name in ("smollm", "gpt-2", "llama-bpe", "qwen2")
    }
    for pipeline in pipelines.values():
        pipeline.add_special_tokens(special)

    rng = random.Random(SEED)
    texts = hard_texts(rng)
    assert len(texts) >= 2000, len(texts)
    cases = []
    old_form_c = 0
    for text in texts:
        # Normalisation is Python's: `tokenizers` has an older Unicode there and leaves newer marks.
        composed = unicodedata.normalize("NFC", text)
        ids = {
            name: ids_of(pipeline, composed if name == "qwen2" else text, False)
            for name, pipeline in pipelines.items()
        }
        old_form_c += normalizers.NFC().normalize_str(text) != composed
        mistral = sentences.encode(text)
        row = {"text": text, "smollm": ids["smollm"], "mistral": mistral}
        # Other pre-tokenizers over the same vocabulary, where the ids differ from "smollm".
        row |= {name: ids[name] for name in pipelines if ids[name] != ids["smollm"]}
        if len(text) < 60:
            # Words are spelt in the byte alphabet, one character a byte.
            words = {
                name: [len(word) for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text)]
                for name, pipeline in pipelines.items()
            }
            row["words"] = {
                name: word
                for name, word in words.items()
                if name == "smollm" or word != words["smollm"]
            }
        with_special = ids_of(pipelines["smollm"], text, True)
        if with_special != ids["smollm"]:
            row["parsed"] = with_special
        # What decoding gives, where it is not the text.
        decoded = pipelines["smollm"].decode(ids["smollm"], skip_special_tokens=False)
        if decoded != text:
            row["smollm_text"] = decoded
        if sentences.decode(mistral) != text:
            row["mistral_text"] = sentences.decode(mistral)
        cases.append(row)
    write_lines("cases.jsonl", cases)
    write_lines("added_tokens.jsonl", added_token_cases(rng, vocabulary, merges, 60))
    counts = {
        key: sum(key in row for row in cases)
        for key in sorted({key for row in cases for key in row})
    }
    print(
        f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}: {counts}, "
        f"{old_form_c} texts that tokenizers normalises otherwise")


if __name__ == "__main__":
    main()
