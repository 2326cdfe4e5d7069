"""Learning from a teacher's distribution on the policy's own responses: on-policy distillation, self-distillation.

A teacher is a reference of the KL that the recipe names (`algorithm.kl_to: teacher`): another model, or the policy with
another prompt. Everything else of the algebra of objectives applies to it as to the reference.
"""
