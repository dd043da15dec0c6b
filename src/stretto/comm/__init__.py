"""How updates travel: messages, policies, budgets, ranking, codec, links. Pure: nothing here sends, it says what to."""
