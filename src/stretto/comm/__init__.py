"""Communication of tables as pure logic: messages, policies, budgets, ranking, codec, links. Nothing here sends."""
