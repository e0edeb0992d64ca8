# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

from flambeau.cuda._jiterator_parser import CodeError, parse

PHRASE = "Couldn't parse code, please check correctness"


@pytest.mark.parametrize(
    ("code", "name", "parameters"),
    [
        ("template <typename T> T k(T x) { return x; }", "k", 1),
        ("\n\t template<class T>T k(T x){return x;}", "k", 1),
        ("template <typename T> auto k(T x, T b) { return x * b; } and more text", "k", 2),
        ("template <typename T> bool k(T x, T unused) { return x > 0; }", "k", 2),
        ("template <typename T>\nT\nk\n(T x)\n{\nreturn x;\n}", "k", 1),
        ("template <typename T, int N = (3 > 2)> T k(T x) { return x + N; }", "k", 1),
        ("template <typename T> T k(T x, T (&f)(T, T), int n[3]) { return f(x, x); }", "k", 3),
        ("template <typename T> auto k(T x) -> decltype(x) { return x; }", "k", 1),
        ("template <typename T> T k(T x) noexcept { return x; }", "k", 1),
    ],
)
def test_accepted(code: str, name: str, parameters: int) -> None:
    entry = parse(code)
    assert (entry.name, len(entry.parameters)) == (name, parameters)


@pytest.mark.parametrize(
    "text",
    [
        "/* } */ return x;",
        "return x; // }",
        "return x; // } \\\n still } the comment\n",
        'const char* s = "}\\"}"; return x;',
        "return '}' ? x : x;",
        "return '\\'' ? x : x;",
        'auto s = R"(}")"; return x;',
        'auto s = R"mark(})"})mark"; return x;',
        "return 1'000'000 + x;",
        "return 1e+5 * x;",
        "\n#define OPEN { \\\n {\nreturn x;",
        "auto f = [](T y) { if (y > 0) { return y; } return T(0); }; return f(x);",
    ],
)
def test_brackets_in_text_do_not_count(text: str) -> None:
    entry = parse("template <typename T> T k(T x) { " + text + "\n}")
    assert (entry.name, len(entry.parameters)) == ("k", 1)


def test_the_last_function_template_is_the_entry() -> None:
    code = """
    template <typename T> struct Box { T a; };
    template <typename T> T first(T x) { return x; }
    inline float helper(float x) { return x; }
    template <typename T> T second(T x, T y) { return first<T>(x); }
    template <typename T> using Alias = T;
    int after = 3;
    """
    assert parse(code).name == "second"


@pytest.mark.parametrize(
    ("code", "line", "column", "why"),
    [
        ("template <typename T> T* k(T x) { return &x; }", 1, 24, "returns a pointer"),
        ("template <typename T> T& k(T x) { return x; }", 1, 24, "returns a reference"),
        ("template <typename T> T my::k(T x) { return x; }", 1, 27, "qualified name"),
        ("template <typename T> std::a k(T x) { return x; }", 1, 26, "return type is qualified"),
        ("template <typename T> A<T> k(T x) { return x; }", 1, 24, "return type is a template"),
        ("template <typename T>\n inline T k(T x) { return x; }", 2, 2, "'inline' stands before"),
        ("template <typename T> __device__ T k(T x) { return x; }", 1, 23, "'__device__' stands"),
        ("template <typename T> unsigned int k(T x) { return x; }", 1, 23, "'unsigned' stands"),
        ("template <typename T> T k(T x) {}", 1, 32, "body is empty"),
        ("template <typename T> T k(T x) { /* nothing */ }", 1, 32, "body is empty"),
        ("template <typename T> T k() { return 1; }", 1, 26, "has no parameters"),
        ("template <typename T> T k(T x, ) { return x; }", 1, 32, "parameter is missing"),
        ("// why\ntemplate <typename T> T k(T x) { return x; }", 1, 1, "a comment stands before"),
        ("  /* why */ template <typename T> T k(T x) { return x; }", 1, 3, "a comment stands"),
        ("", 1, 1, "'template' has to come first"),
        ("T k(T x) { return x; }", 1, 1, "'template' has to come first"),
        ("templates <typename T> T k(T x) { return x; }", 1, 1, "'template' has to come first"),
        ("template <typename T> T k(T x) {\n return x;\n", 1, 32, "'{' is not closed"),
        ("template <typename T> T k(T x { return x; }", 1, 26, "'(' is not closed"),
        ("template <typename T> T k(T x) { return (x]; }", 1, 43, "'(' is closed by ']'"),
        ("template <typename T> T k(T x)) { return x; }", 1, 31, "nothing is open"),
        ("template <typename T> T k(T x);", 1, 31, "'{' has to follow"),
        ("template <typename T> T k(T x)", 1, 31, "'{' has to follow"),
        ("template <typename T> T k { return x; }", 1, 27, "'(' has to follow"),
        ("template <typename T> k(T x) { return x; }", 1, 24, "name has to follow its return"),
        ("template <> T k(T x) { return x; }", 1, 11, "template has no parameters"),
        ("template typename T> T k(T x) { return x; }", 1, 10, "'<' has to follow"),
        ("template <typename T T k(T x) { return x; }", 1, 10, "not ended by '>'"),
        ("template <typename T> T k(T x) { /* }", 1, 34, "comment does not end"),
        ('template <typename T> T k(T x) { return "; }', 1, 41, "literal does not end"),
        ("template <typename T> struct S { T a; };", 1, 41, "none of these templates"),
    ],
)
def test_refused(code: str, line: int, column: int, why: str) -> None:
    with pytest.raises(CodeError) as caught:
        parse(code)
    assert PHRASE in str(caught.value)
    assert why in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_the_message_shows_the_line_and_points_at_the_place() -> None:
    with pytest.raises(ValueError, match=PHRASE) as caught:
        parse("template <typename T>\n  T* k(T x) { return &x; }\n")
    lines = str(caught.value).splitlines()
    assert lines[1].index("*") == lines[2].index("^")


def test_the_error_can_be_pickled() -> None:
    with pytest.raises(CodeError) as caught:
        parse("int x;")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.line) == (str(caught.value), 1)


@pytest.mark.parametrize(
    ("template", "parameters", "count"),
    [
        ("typename T", "T x", 1),
        ("typename T, typename U", "T x, U y", 1),
        ("typename T, typename U", "T x, T y", 2),
        ("typename T, class U, class V", "T x", 3),
        ("typename T, class U, class V", "T x, U y", 1),
        ("typename T, int N = 3", "T x", 1),
        ("typename T, typename U = int", "T x", 1),
    ],
)
def test_types_that_no_parameter_mentions_are_given(
    template: str, parameters: str, count: int
) -> None:
    entry = parse(f"template <{template}> T k({parameters}) {{ return x; }}")
    assert entry.type_arguments == count


def test_how_many_arguments_the_entry_takes() -> None:
    entry = parse("template <typename T> void k(T x, T y = T(1, 2), T z = {3, 4}) { x; }")
    assert [entry.takes(n) for n in range(5)] == [False, True, True, True, False]
    assert [p.is_reference for p in entry.parameters] == [False] * 3
    pack = parse("template <typename T, typename... Rest> T k(T x, Rest... rest) { return x; }")
    assert pack.takes(7)
    outputs = parse("template <typename T> void k(T x, T& a, const T &b) { a = x; }")
    assert [p.is_reference for p in outputs.parameters] == [False, True, True]
