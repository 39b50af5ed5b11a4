"""An automatic differentiation engine to read, and an NPLM, an RNN and an LSTM on it. It imports nothing of nextword.

from nextword.micro import Value, Tensor, draw
"""

from nextword.micro.drawing import draw
from nextword.micro.engine import Tensor, Value, concatenate
from nextword.micro.models import LSTM, NPLM, RNN, encode, train

__all__ = ["LSTM", "NPLM", "RNN", "Tensor", "Value", "concatenate", "draw", "encode", "train"]
