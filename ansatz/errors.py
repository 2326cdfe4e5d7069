"""The error tree. Every error that a person can cause is an AnsatzError and is shown as one sentence, exit code 2.

AnsatzError
|-- ConfigError        a recipe, overlay or override is wrong; nothing has started
|-- DataError          a problem file or row is wrong (names file and line)
|-- ModelError         a folder is no model, a prompt does not fit the context, a tokenizer lacks what is needed
|-- CheckpointError    a checkpoint is missing, broken or of another run
|-- AlignmentError     sampler and trainer disagree about log-probs
|-- RolloutError       the engine that samples does not start, is lost again and again, or is not what was asked for
|-- NonFiniteError     a loss or gradient is nan or inf; raised before the optimiser step
`-- MissingExtraError  an optional package is needed; names the extra to install
"""


class AnsatzError(Exception):
    """Base of all errors meant for people: says what, got, expected, and what to do."""


class ConfigError(AnsatzError):
    pass


class DataError(AnsatzError):
    pass


class ModelError(AnsatzError):
    pass


class CheckpointError(AnsatzError):
    pass


class AlignmentError(AnsatzError):
    pass


class RolloutError(AnsatzError):
    pass


class NonFiniteError(AnsatzError):
    pass


class MissingExtraError(AnsatzError):
    pass
