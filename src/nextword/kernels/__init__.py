"""Fast paths. Each kernel computes what a readable reference computes, is tested against it, is selected in one place,
and makes a command at least 1.3 times as fast (docs/benchmarks.md).

    kernel               reference                                      selected in
    cpu_decode           CausalNetwork.step, DecoderLM.prompt           dispatch.py
    cuda_graphs          CausalNetwork.step                             dispatch.py
    word2vec             Word2Vec.scores, GloVe.scores and autograd     models/word2vec.py, glove.py `learn`
    cpu_matmul.multiply  dequantized F.linear                           layers/quantized.py
    cpu_int8             RecurrentLayer with dequantized weights        layers/quantized.py
    projected_lstm       ProjectedLSTM.stepwise                         layers/recurrent.py
    triton_kernels       torch, in the calling function                 their callers, by `available()`

`cpu_int8` holds the LLVM code of the CPU kernels; `graph_capture` captures CUDA graphs; `warmup` compiles everything
that Numba compiles, so that nobody waits later.
"""
