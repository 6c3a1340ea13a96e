# verl and vLLM on NVIDIA GPUs: language models under both back-ends, and ALFWorld.
#   docker build -f docker/gpu.Dockerfile -t arlarena:gpu .
#   docker run --rm --gpus all --shm-size 16g -v "$PWD/studies:/studies" arlarena:gpu run GRID --yes
# torch, vLLM, verl and transformers are pinned to one another: vLLM is built for exactly this torch, and verl
# takes these versions of transformers. torch's wheels bring CUDA's libraries; the base image brings the
# compiler that kernels are built with.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
ARG PYTHON=3.12
ENV DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
       build-essential bubblewrap cmake git "python${PYTHON}" "python${PYTHON}-dev" "python${PYTHON}-venv" \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 arena \
    && install --directory --owner arena /studies \
    && "python${PYTHON}" -m venv /opt/arlarena
ENV PATH=/opt/arlarena/bin:$PATH
WORKDIR /source
COPY constraints.txt ./
# the engine first: what it needs of torch decides
RUN pip install torch==2.13.0 transformers==5.10.4 numpy==2.3.5 vllm==0.27.1
COPY pyproject.toml README.md ./
COPY arena arena
COPY analysis analysis
COPY trainers trainers
COPY envs envs
# vLLM's numpy is older than ours, and all of ours runs with it
RUN sed '/^numpy==/d' constraints.txt > /tmp/constraints.txt \
    && pip install --constraint /tmp/constraints.txt numpy==2.3.5 verl==0.9.1 '.[verl,lm,tir,alfworld]' \
    && python -c "import torch, transformers; assert torch.__version__.startswith('2.13.0')"
COPY grids /home/arena/grids
ENV ARENA_STUDIES=/studies PYTHONUNBUFFERED=1 HF_HOME=/studies/.cache/huggingface VLLM_NO_USAGE_STATS=1 \
    RAY_USAGE_STATS_ENABLED=0 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001
WORKDIR /home/arena
VOLUME /studies
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["arena", "--version"]
ENTRYPOINT ["arena"]
CMD ["--help"]
