from serving.security.tokens import StoredToken, TokenTable, hash_token, new_token


def _table(*tokens: str) -> TokenTable[str]:
    return TokenTable(StoredToken(token[4:12], hash_token(token), 0.0, token) for token in tokens)


def test_tokens_are_found_by_their_whole_text_only() -> None:
    (first, key_id, digest), (second, *_) = new_token(), new_token()
    table = _table(first, second)
    assert digest == hash_token(first).hex()
    for token in (first, second):
        found = table.find(token)
        assert found is not None
        assert found.owner == token
        for wrong in (token[:-1], token + "x", token.upper(), token[:13] + second[13:] + "x", "", "glt_", token[4:12]):
            assert table.find(wrong) is None
    mixed = f"glt_{key_id}_{second[13:]}"
    assert table.find(mixed) is None


def test_a_token_names_itself_but_its_hash_says_nothing() -> None:
    token, key_id, digest = new_token()
    assert token.startswith(f"glt_{key_id}_")
    assert len(token) == 56
    assert token[13:] not in digest
    assert len({new_token()[0] for _ in range(100)}) == 100


def test_what_is_no_text_of_a_token_is_only_unknown() -> None:
    assert _table(new_token()[0]).find("glt_\udcff\x00é") is None
    assert _table().find(new_token()[0]) is None
