"""Fast paths. Each kernel computes what a readable reference computes, is tested against it, and is selected in one
place.

| kernel                          | reference                                     | selected in
| | ------------------------------- | --------------------------------------------- |
------------------------------------ | | `cublaslt`                      | F.linear, F.gelu
| layers/linear.py                     | | `cpu_matmul.few_rows_linear`    | F.linear
| layers/linear.py, output/softmax.py  | | `cpu_matmul.multiply`           | dequantized F.linear
| layers/quantized.py                  | | `cpu_decode` (`cpu_matmul.walk`)| CausalNetwork.step, DecoderLM.prompt
| kernels/dispatch.py                  | | `cuda_graphs`                   | CausalNetwork.step
| kernels/dispatch.py                  | | `int8_lstm`                     | RecurrentLayer with dequantized weights
| layers/quantized.py                  | | `lstm.run_padded_cpu`           | layers/bilstm.py `run_packed`
| layers/bilstm.py `run_padded`        | | `lstm.FUSED_GATES`              | layers/recurrent.py `gru_gates`,
`lstm_gates` | layers/stepwise.py                   | | `lstm.StepwiseLinear` …         | F.linear, matmul, tanh
| layers/stepwise.py, attention.py     | | `lstm.ProjectedLoops`           | ProjectedLSTM.stepwise
| layers/bilstm.py                     | | `triton_kernels`                | torch, in the calling function
| their callers, by `available()`      | | `word2vec`                      | Word2Vec.scores, GloVe.scores and autograd
| models/word2vec.py, glove.py `learn` |

`cpu_int8` holds the LLVM code of the CPU kernels; `graph_capture` captures CUDA graphs; `warmup` compiles everything
that Numba compiles, so that nobody waits later.
"""
