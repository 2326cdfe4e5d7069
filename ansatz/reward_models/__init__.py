"""Reward models: their stage (`stage`), its section of a recipe, its data, the trainer and the measurements.

`model` describes the architecture. The stage is found by its declaration (`section.DECLARATION`, named in
`config.recipe`), and RL's critic finds `model.load_for_critic` by its name. `loop.own_reward_model` says where RL uses
a model that the stage has trained. This package is the top of the layers that a run has, so nothing there imports it.
"""
