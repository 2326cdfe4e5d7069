"""How a problem is put to the policy: templates and chat rendering. Answer-format instructions live here once."""
