# What `make run` needs, without a GPU: the built-in trainer, Sokoban, WebShop and Python tasks.
#   docker build -f docker/cpu.Dockerfile -t arlarena:cpu .
#   docker run --rm -v "$PWD/studies:/studies" arlarena:cpu run grids/quickstart.yaml --yes
# A torch without CUDA is smaller by gigabytes: --build-arg TORCH_INDEX=<the index of torch's CPU wheels>
FROM python:3.11.13-slim-bookworm AS build
ARG TORCH_INDEX=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
RUN python -m venv /opt/arlarena
ENV PATH=/opt/arlarena/bin:$PATH
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md ./
COPY arena arena
COPY analysis analysis
COPY trainers trainers
COPY envs envs
RUN pip install --constraint constraints.txt '.[tir,lm]'

FROM python:3.11.13-slim-bookworm
# bubblewrap is the sandbox of the Python tasks
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 arena \
    && install --directory --owner arena /studies
COPY --from=build /opt/arlarena /opt/arlarena
COPY grids /home/arena/grids
ENV PATH=/opt/arlarena/bin:$PATH ARENA_STUDIES=/studies PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/arena
VOLUME /studies
HEALTHCHECK --interval=60s --timeout=30s --start-period=20s CMD ["arena", "--version"]
ENTRYPOINT ["arena"]
CMD ["--help"]
